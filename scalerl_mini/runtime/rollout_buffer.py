"""The rollout buffer: groups on their way from the generators to the trainer, in shared memory.

One slot is one group. A slot goes round in four states; each move belongs to one side:

    FREE --issue--> ISSUED --claim--> CLAIMED --commit--> READY --free--> FREE
                       ^----reissue----'
    issue and free are the trainer's, claim and commit the generators', reissue (when one died) the launcher's

The slot of a sequence is sequence % capacity, so consumption in order needs no search and nothing is ever moved.
Every move happens under the segment's lock and writes the state last: a process killed in the middle of a move leaves
the slot in the old state, whole. Every claim of a slot has a number of its own; a generator whose group was issued
again cannot commit it any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from scalerl_mini.runtime.gate import Ticket
from scalerl_mini.runtime.header import attach_with_header, create_with_header
from scalerl_mini.runtime.segment import Segment

_PAYLOAD = ("prompt_length", "prompt", "tokens", "lengths", "logprobs", "versions", "mask", "rewards", "grading",
            "finish", "interrupted")  # fmt: skip


class SlotState(IntEnum):
    """Where a slot is on its way; see the diagram in the module's docstring."""

    FREE = 0
    ISSUED = 1
    CLAIMED = 2
    READY = 3


class Finish(IntEnum):
    """Why a completion ended."""

    EOS = 0
    LENGTH = 1


class ClaimLost(RuntimeError):
    """The group was issued again to another generator; what this one sampled must be dropped."""


@dataclass(frozen=True)
class BufferShape:
    """Sizes of a rollout buffer: slots, G completions a group, longest prompt and longest completion in tokens."""

    capacity: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int

    def __post_init__(self) -> None:
        if min(self.capacity, self.group_size, self.prompt_tokens, self.completion_tokens) < 1:
            raise ValueError(f"every size of a rollout buffer must be positive: {self}")

    @property
    def record(self) -> np.dtype:
        """Layout of one slot, C-aligned so that every field is a well-formed array."""
        completions, tokens = (self.group_size,), (self.group_size, self.completion_tokens)
        fields = [
            ("state", np.int8),
            ("owner", np.int32),
            ("claim", np.int64),
            ("sequence", np.int64),
            ("needs_version", np.int64),
            ("prompt_index", np.int64),
            ("epoch", np.int64),
            ("prompt_length", np.int32),
            ("prompt", np.int32, (self.prompt_tokens,)),
            ("tokens", np.int32, tokens),
            ("lengths", np.int32, completions),
            ("logprobs", np.float32, tokens),
            ("versions", np.int32, tokens),
            ("mask", np.bool_, tokens),
            ("rewards", np.float32, completions),
            ("grading", np.int8, completions),
            ("finish", np.int8, completions),
            ("interrupted", np.bool_, completions),
        ]
        return np.dtype(fields, align=True)

    @property
    def nbytes(self) -> int:
        """Shared memory taken by the slots."""
        return self.capacity * self.record.itemsize


class RolloutBuffer:
    """Slots in shared memory; create it in the launcher, attach it (by `path`) in trainer and generators.

    A record is a zero-copy view of its slot, a numpy structured scalar with the fields of `BufferShape.record`: write
    arrays with `record["tokens"][:] = ...` and scalars with `record["prompt_length"] = ...`. A view that is kept after
    `free` shows whatever comes next.
    """

    def __init__(self, segment: Segment, data: np.ndarray, shape: BufferShape) -> None:
        self.shape = shape
        self.path = segment.path
        self._segment = segment
        self._slots = data[: shape.nbytes].view(shape.record)
        self._claims: dict[int, int] = {}

    @classmethod
    def create(cls, name: str, shape: BufferShape, fallback_dir: Path | None = None) -> RolloutBuffer:
        """New buffer, all slots FREE; UserError when there is no room for it."""
        segment, data = create_with_header(name, "rollout-buffer", asdict(shape), shape.nbytes, fallback_dir)
        return cls(segment, data, shape)

    @classmethod
    def attach(cls, path_or_name: Path | str) -> RolloutBuffer:
        """Map an existing buffer; its shape is read from its header."""
        segment, data, fields = attach_with_header(path_or_name, "rollout-buffer")
        return cls(segment, data, BufferShape(**fields))

    # The trainer's side.

    def issue(self, ticket: Ticket, prompt_index: int, epoch: int) -> None:
        """Put a ticket into its slot, cleared; RuntimeError when the slot is not FREE."""
        self.issue_all([(ticket, prompt_index, epoch)])

    def issue_all(self, tickets: Iterable[tuple[Ticket, int, int]]) -> None:
        """Issue several (ticket, prompt_index, epoch) in one move: a generator sees all of them or none, so in
        synchronous mode which groups start together does not depend on timing."""
        with self._segment.lock():
            for ticket, prompt_index, epoch in tickets:
                self._put(ticket, prompt_index, epoch)

    def ready(self, sequences: Iterable[int]) -> int:
        """How many of these groups are READY."""
        with self._segment.lock():
            return sum(self._is_ready(sequence) for sequence in sequences)

    def view(self, sequence: int) -> np.void:
        """The record of a READY group, zero-copy, valid until it is freed; RuntimeError when it is not READY."""
        with self._segment.lock():
            slot = self._slot(sequence)
            self._expect(self._is_ready(sequence), slot, f"view sequence {sequence}")
            return slot

    def free(self, sequences: Iterable[int]) -> None:
        """Give READY slots back - after the version they made is published (see gate.py), not before."""
        with self._segment.lock():
            for sequence in sequences:
                slot = self._slot(sequence)
                self._expect(self._is_ready(sequence), slot, f"free sequence {sequence}")
                slot["state"] = SlotState.FREE

    def reissue(self, owner: int, deadline_s: float | None = None) -> list[int]:
        """Issue again what a dead generator had claimed, cleared, under the same sequence; returns those sequences.

        Only for a process that is gone (killed and joined): one that is merely slow could still write into the slot.
        The launcher calls it, and gives up with TimeoutError when the buffer stays locked for `deadline_s`.
        """
        with self._segment.lock(deadline_s):
            held = (self._slots["state"] == SlotState.CLAIMED) & (self._slots["owner"] == owner)
            for name in _PAYLOAD:
                self._slots[name][held] = 0
            self._slots["state"][held] = SlotState.ISSUED
            return sorted(int(sequence) for sequence in self._slots["sequence"][held])

    def counts(self) -> dict[str, int]:
        """Number of slots in each state, by its lower-case name."""
        with self._segment.lock():
            states = self._slots["state"].copy()
        return {state.name.lower(): int((states == state).sum()) for state in SlotState}

    # The generators' side.

    def claim(self, owner: int, loaded_version: int) -> np.void | None:
        """Take the lowest issued sequence; None when nothing is issued or it needs newer weights than are loaded.

        Load the newest published version first, then claim: that order is what bounds the lag.
        """
        with self._segment.lock():
            issued = np.flatnonzero(self._slots["state"] == SlotState.ISSUED)
            if not len(issued):
                return None
            slot = self._slots[issued[self._slots["sequence"][issued].argmin()]]
            if loaded_version < slot["needs_version"]:
                return None
            slot["claim"] += 1
            slot["owner"] = owner
            slot["state"] = SlotState.CLAIMED
            self._claims[int(slot["sequence"])] = int(slot["claim"])
            return slot

    def commit(self, sequence: int) -> None:
        """Hand over a claimed group whose record is filled; ClaimLost when this process no longer holds it."""
        claim = self._claims.pop(sequence, None)
        with self._segment.lock():
            slot = self._slot(sequence)
            held = slot["sequence"] == sequence and slot["claim"] == claim
            if not held or slot["state"] != SlotState.CLAIMED:
                raise ClaimLost(f"sequence {sequence} is not claimed by this process (any more)")
            slot["state"] = SlotState.READY

    def close(self) -> None:
        """Let go of the mapping in this process."""
        self._slots = np.zeros(0, self.shape.record)
        self._segment.close()

    def unlink(self) -> None:
        """Remove the segment's name; the creator's duty."""
        self._segment.unlink()

    def _put(self, ticket: Ticket, prompt_index: int, epoch: int) -> None:
        index = ticket.sequence % self.shape.capacity
        slot = self._slots[index]
        self._expect(slot["state"] == SlotState.FREE, slot, f"issue sequence {ticket.sequence}")
        for name in _PAYLOAD:
            self._slots[name][index] = 0
        slot["sequence"] = ticket.sequence
        slot["needs_version"] = ticket.needs_version
        slot["prompt_index"] = prompt_index
        slot["epoch"] = epoch
        slot["state"] = SlotState.ISSUED

    def _slot(self, sequence: int) -> np.void:
        return self._slots[sequence % self.shape.capacity]

    def _is_ready(self, sequence: int) -> bool:
        slot = self._slot(sequence)
        return bool(slot["state"] == SlotState.READY and slot["sequence"] == sequence)

    def _expect(self, allowed: bool, slot: np.void, move: str) -> None:
        if not allowed:
            state = SlotState(int(slot["state"])).name
            raise RuntimeError(f"cannot {move}: its slot holds sequence {slot['sequence']} in state {state}")
