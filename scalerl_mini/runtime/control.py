"""The control block: one page of shared memory by which the processes of a run know about each other.

A stop flag with its reason, and for each role a heartbeat, the stage it is in, and counters. Each word has one writer
(a role writes its own row, the launcher while the role does not run; the stop flag is set once), so nothing here takes a
lock and nothing can be left locked.
"""

from __future__ import annotations

import time
from enum import IntEnum
from pathlib import Path

import numpy as np

from scalerl_mini.runtime.header import attach_with_header, create_with_header
from scalerl_mini.runtime.segment import Segment

STOP_REASONS = ("interrupt", "failure", "finished")
COUNTERS: dict[str, type[np.generic]] = {
    "generated_tokens": np.int64,
    "prompt_tokens": np.int64,
    "wait_s": np.float64,
    "evaluation_s": np.float64,
    "decode_steps": np.int64,
    "weight_loads": np.int64,
    "loaded_version": np.int64,
    "loaded_checksum": np.int64,
}
_ROW = np.dtype(
    [("started", np.float64), ("beat", np.float64), ("stage", np.int64), *COUNTERS.items(), ("words", "S1024")]
)


class Stage(IntEnum):
    """What a role is doing."""

    STARTING = 0
    GENERATING = 1
    WAITING = 2
    LOADING = 3
    EVALUATING = 4
    TRAINING = 5
    PUBLISHING = 6
    CHECKPOINTING = 7
    DONE = 8


class Control:
    """Stop flag, heartbeats, stages and counters of the named roles."""

    def __init__(self, segment: Segment, data: np.ndarray, roles: list[str]) -> None:
        self.path = segment.path
        self.roles = roles
        self._segment = segment
        self._stop = data[:8].view(np.int64)
        self._rows = data[64 : 64 + len(roles) * _ROW.itemsize].view(_ROW)
        self._index = {role: index for index, role in enumerate(roles)}

    @classmethod
    def create(cls, name: str, roles: list[str], fallback_dir: Path | None = None) -> Control:
        """New control block: not stopping, every role STARTING and seen now, counters 0, no version loaded (-1)."""
        if len(set(roles)) != len(roles):
            raise ValueError(f"two roles of one name: {roles}")
        segment, data = create_with_header(
            name, "control", {"roles": roles}, 64 + len(roles) * _ROW.itemsize, fallback_dir
        )
        control = cls(segment, data, roles)
        for role in roles:
            control.start(role)
        return control

    @classmethod
    def attach(cls, path_or_name: Path | str) -> Control:
        """Map an existing control block."""
        segment, data, fields = attach_with_header(path_or_name, "control")
        return cls(segment, data, fields["roles"])

    def request_stop(self, reason: str) -> None:
        """Ask every role to end: "interrupt", "failure" or "finished". The first reason stays."""
        word = STOP_REASONS.index(reason) + 1
        if not self._stop[0]:
            self._stop[0] = word

    @property
    def stopping(self) -> bool:
        """True once somebody asked for the end of the run."""
        return bool(self._stop[0])

    @property
    def stop_reason(self) -> str | None:
        """Why the run is ending; None while it goes on."""
        word = int(self._stop[0])
        return STOP_REASONS[word - 1] if word else None

    def start(self, role: str) -> None:
        """Launcher: the process of `role` is about to start, for the first time or anew. Totals go on, for whoever looks
        at their differences."""
        row = self._rows[self._index[role]]
        row["loaded_version"] = -1
        row["words"] = b""
        row["started"] = time.monotonic()
        self.beat(role, Stage.STARTING)

    def started(self, role: str) -> float:
        """When the process of `role` was started last, in `time.monotonic()` seconds."""
        return float(self._rows[self._index[role]]["started"])

    def beat(self, role: str, stage: Stage) -> None:
        """Say that `role` is alive and in `stage`; a role that is silent too long is taken for hung."""
        row = self._rows[self._index[role]]
        row["stage"] = stage
        row["beat"] = time.monotonic()

    def stage(self, role: str) -> Stage:
        """The stage `role` reported last."""
        return Stage(int(self._rows[self._index[role]]["stage"]))

    def last_beat(self, role: str) -> float:
        """When `role` was last seen, in `time.monotonic()` seconds (one clock for all processes of a machine)."""
        return float(self._rows[self._index[role]]["beat"])

    def last_seen(self, role: str) -> str:
        """For messages: "generator-0 last seen GENERATING 3.2 s ago"."""
        return f"{role} last seen {self.stage(role).name} {time.monotonic() - self.last_beat(role):.1f} s ago"

    def add(self, role: str, counter: str, amount: float) -> None:
        """Add to one of the COUNTERS; only `role` itself may do so."""
        self._rows[counter][self._index[role]] += amount

    def put(self, role: str, counter: str, value: float) -> None:
        """Set one of the COUNTERS (the loaded version and its checksum); only `role` itself may do so."""
        self._rows[counter][self._index[role]] = value

    def get(self, role: str, counter: str) -> float:
        """Value of one of the COUNTERS, an int for the integer ones."""
        return self._rows[counter][self._index[role]].item()

    def leave_words(self, role: str, text: str) -> None:
        """Say what `role` dies of, in 1024 bytes: on a full disk its log could not."""
        self._rows["words"][self._index[role]] = text.encode()[:1024]

    def words(self, role: str) -> str:
        """What `role` said it died of; empty when it said nothing."""
        return bytes(self._rows["words"][self._index[role]]).decode(errors="ignore")

    def close(self) -> None:
        """Let go of the mapping in this process."""
        self._stop = np.zeros(1, np.int64)
        self._rows = np.zeros(0, _ROW)
        self._segment.close()

    def unlink(self) -> None:
        """Remove the segment's name; the creator's duty."""
        self._segment.unlink()
