"""One soaked run: where its processes are, how they are struck, and that nobody can tell from what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalerl_mini.runtime import segment
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.rollout_buffer import RolloutBuffer, SlotState
from scalerl_mini.runtime.segment_names import start_time
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.row_log import read_rows
from tests.fakes import FAKE_RUN
from tests.patience import patience
from tests.soak import actors

STEPS, K, KEEP = 24, 2, 2
SETTINGS = (
    *FAKE_RUN,
    "task.options={prompts=14, held_out=20}",
    f"pipeline.k={K}",
    f"training.steps={STEPS}",
    "training.lr=0.01",
    "evaluation.prompts=20",
    "evaluation.samples=2",
    "evaluation.early_every=6",
    "runtime.checkpoint_every=5",
    f"runtime.keep_checkpoints={KEEP}",
    "runtime.restarts=6",
)
SILENT_S, WAIT_S = 2.5, 8.0  # deadlines of the runs, on an idle machine
FULL, BACKOFF = "BUFFER_FULL", "BACKOFF"
EXITS = {"SIGKILL": -signal.SIGKILL, "SIGINT": 130, "2x SIGINT": 130, "SIGTERM": 143}
OWN = ("wall_seconds", "device_hours", "buffered_groups", "lag_min", "lag_mean", "lag_max")
WITHIN_S = 0.02  # a signal is sent up to this long after its stage was seen
LONGEST_RUN_S = 120.0
ORDERLY_S = 10.0  # an interrupted launcher ends within this time


@dataclass(frozen=True)
class Kill:
    """One planned signal; `role` is generator (any), trainer or launcher, whose stage is that of any other process, or the
    pause between a trainer's death and the next life."""

    role: str
    stage: str
    signal: str


@dataclass
class Run:
    """One run folder, and the launchers that work on it one after the other."""

    folder: Path
    model: Path
    generators: int
    random: random.Random
    sent: list[Kill] = field(default_factory=list)
    launchers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pids = self.folder.with_suffix(".pids")
        self.console = self.folder.with_suffix(".console")
        settings = (
            *SETTINGS,
            f"model.name={self.model}",
            f"runtime.generators={self.generators}",
            f"runtime.heartbeat_timeout_s={patience(SILENT_S)}",
            f"runtime.wait_timeout_s={patience(WAIT_S)}",
        )
        self.settings = [word for setting in settings for word in ("--set", setting)]
        self.views: tuple[Control, RolloutBuffer | None] | None = None
        self.struck: set[int] = set()

    def go(self, plan: list[Kill]) -> list[Kill]:
        """Run to the end, through as many kills of the plan as there is occasion for; returns the others."""
        start = time.monotonic()
        self._launch("train", "--out", str(self.folder), *self.settings)
        plan, armed = list(plan), 0.0
        while True:
            assert time.monotonic() < start + patience(LONGEST_RUN_S), f"a run that does not end: {self.folder}"
            code = self._ended()
            if code == 0:
                return plan
            if code is not None:
                self._continue(code)
            late = self.interrupted + patience(ORDERLY_S)
            assert time.monotonic() < late, f"an interrupt that does not end the launcher: {self.folder}"
            if plan and (time.monotonic() > armed or plan[0].stage == BACKOFF) and self._strike(plan[0]):
                plan.pop(0)
                armed = time.monotonic() + self.random.choice((0.0, 0.3, 1.0)) * self.random.random()
            time.sleep(0.0005)

    def _launch(self, *arguments: str) -> None:
        self.launchers.append(actors.launch(list(arguments), self.console, self.pids))
        self._forget()
        self.lived, self.interrupted = False, float("inf")

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self.launchers[-1], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def _continue(self, code: int) -> None:
        """After the launcher's death: its children must go with it, then the run is resumed, or begun if it had not got
        as far as a checkpoint."""
        last = next((kill for kill in reversed(self.sent) if kill.signal in EXITS and kill.role == "launcher"), None)
        assert code == (EXITS[last.signal] if last else 0), f"exit {code}: {self.console.read_text()[-3000:]}"
        self.wait_until_gone()
        if list_checkpoints(self.folder / "checkpoints"):
            self._launch("train", "--resume", str(self.folder))
        else:
            self._launch("train", "--out", str(self.folder), "--overwrite", *self.settings)

    def wait_until_gone(self, seconds: float = 10.0) -> None:
        """All processes of all launchers so far are gone."""
        start = time.monotonic()
        while alive := [pid for _, pid in self._started() if start_time(pid) is not None]:
            assert time.monotonic() < start + patience(seconds), f"left behind: {alive}"
            time.sleep(0.005)

    def _strike(self, kill: Kill) -> bool:
        """Send the signal if its moment is there; a launcher that is ending already is left to it."""
        if kill.role == "launcher" and self.interrupted < float("inf"):
            return False
        role = self._seen(kill)
        if role is None:
            return False
        time.sleep(self.random.random() * WITHIN_S)
        pid = self.launchers[-1] if kill.role == "launcher" else dict(self._started()).get(role)
        if pid is None or pid in self.struck or start_time(pid) is None:
            return False
        os.kill(pid, signal.Signals[kill.signal.removeprefix("2x ")])
        self.struck |= {pid} if kill.role != "launcher" else set()
        self.sent.append(kill)
        if (kill.role, kill.signal) == ("launcher", "SIGSTOP"):  # nobody watches the watcher: it wakes up by itself
            time.sleep(self.random.random() * 4.0)
            os.kill(pid, signal.SIGCONT)
        if kill.signal == "2x SIGINT":
            time.sleep(self.random.random() * 0.1)
            os.kill(pid, signal.SIGINT)
        if kill.role == "launcher" and kill.signal in EXITS:
            self.interrupted = time.monotonic()
        return True

    def _seen(self, kill: Kill) -> str | None:
        """A role that is in the kill's stage just now."""
        views = self._views()
        self.lived |= views is not None
        if kill.stage == BACKOFF:
            return kill.role if self.lived and views is None else None
        if views is None:
            return None
        control, buffer = views
        roles = [role for role in control.roles if kill.role == "launcher" or role.startswith(kill.role)]
        self.random.shuffle(roles)
        if kill.stage == FULL:
            full = buffer is not None and bool((buffer._slots["state"] == SlotState.READY).all())
            return next((role for role in roles if full and control.stage(role) == Stage.WAITING), None)
        return next((role for role in roles if control.stage(role) == Stage[kill.stage]), None)

    def _views(self) -> tuple[Control, RolloutBuffer | None] | None:
        """The control block, and once there is one the rollout buffer, of the life that goes on now."""
        if self.views and not self.views[0].path.exists():
            self._forget()
        with contextlib.suppress(FileNotFoundError, ValueError):  # a segment is being made, or has just gone
            if self.views is None:
                paths = list(segment.SHM_DIR.glob(f"scalerl-{self.launchers[-1]}-*.control"))
                self.views = (Control.attach(paths[0]), None) if paths else None
            elif self.views[1] is None:
                path = self.views[0].path
                buffer = RolloutBuffer.attach(path.with_name(path.name.removesuffix("control") + "rollouts"))
                self.views = self.views[0], buffer
        return self.views

    def _forget(self) -> None:
        """Let go of the shared memory of a life that is over."""
        for view in self.views or ():
            if view is not None:
                view.close()
        self.views = None

    def _started(self) -> list[tuple[str, int]]:
        lines = self.pids.read_text().splitlines() if self.pids.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    # What a run leaves behind.

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A log without what may differ."""
        rows = read_rows(self.folder / name)
        return [{k: v for k, v in row.items() if k not in OWN and not k.endswith("_s")} for row in rows]

    def check(self, reference: Run) -> None:
        """Raise AssertionError unless the run ended as if nobody had disturbed it, and left nothing behind."""
        record = json.loads((self.folder / "run.json").read_text())
        assert (record["state"], record["reason"]) == ("finished", None), record
        steps = read_rows(self.folder / "steps.jsonl")
        assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
        rewound = read_rows(self.folder / "steps.rewound.jsonl")
        assert all(0 <= row["lag_min"] <= row["lag_max"] <= K for row in (*steps, *rewound))
        assert [row["step"] for row in read_rows(self.folder / "evals.jsonl")] == [0, 6, 12, 18, 24]
        for name in ("steps.jsonl", "evals.jsonl"):
            assert self.rows(name) == reference.rows(name), name
        newest = [list_checkpoints(run.folder / "checkpoints")[0] for run in (self, reference)]
        weights = [(path / "model.safetensors").read_bytes() for path in newest]
        assert newest[0].name == newest[1].name
        assert weights[0] == weights[1]
        assert len(list_checkpoints(self.folder / "checkpoints")) <= KEEP
        self.wait_until_gone()
        left = [path for pid in self.launchers for path in segment.SHM_DIR.glob(f"scalerl-{pid}-*")]
        left += [path for path in self.folder.rglob("*") if "tmp" in path.name or path.name.startswith("scalerl-")]
        assert left == []

    @property
    def deaths(self) -> int:
        """Deaths that the launcher noticed and mended."""
        return len(json.loads((self.folder / "run.json").read_text()).get("deaths", []))
