"""Rollout buffer: rivals and deaths at every line of every move."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from scalerl_mini.runtime.gate import Ticket
from scalerl_mini.runtime.rollout_buffer import ClaimLost, RolloutBuffer
from tests.runtime.support import Crash, at_line, crash
from tests.runtime.test_rollout_buffer import SHAPE, complete, issue


def test_two_generators_never_get_the_same_group(prefix: str) -> None:
    """Whatever line of its claim one generator has reached when another claims too."""
    line, finished = 0, False
    while not finished:
        line += 1
        buffer = RolloutBuffer.create(f"{prefix}.{line}", SHAPE)
        other, claimed = RolloutBuffer.attach(buffer.path), []
        issue(buffer, 0, 1)
        rival = threading.Thread(target=lambda: claimed.append(other.claim(1, 0)))  # noqa: B023

        def claim_as_well(rival: threading.Thread = rival) -> None:
            rival.start()
            rival.join(0.05)

        with at_line(RolloutBuffer.claim, line, claim_as_well) as seen:
            claimed.append(buffer.claim(0, 0))
        finished = len(seen) < line
        if finished:
            rival.start()
        rival.join()
        assert sorted(record["sequence"] for record in claimed) == [0, 1]
        buffer.unlink()
    assert line > 8


def test_a_group_is_either_handed_over_or_issued_again_never_both(prefix: str) -> None:
    """Whatever line of its commit a generator has reached when the trainer takes its groups back."""
    line, finished = 0, False
    while not finished:
        line += 1
        buffer = RolloutBuffer.create(f"{prefix}.{line}", SHAPE)
        trainer, reissued = RolloutBuffer.attach(buffer.path), []
        issue(buffer, 0)
        buffer.claim(5, 0)
        rival = threading.Thread(target=lambda: reissued.extend(trainer.reissue(5)))  # noqa: B023

        def take_back(rival: threading.Thread = rival) -> None:
            rival.start()
            rival.join(0.05)

        committed = False
        with contextlib.suppress(ClaimLost), at_line(RolloutBuffer.commit, line, take_back) as seen:
            buffer.commit(0)
            committed = True
        finished = len(seen) < line
        if finished:
            rival.start()
        rival.join()
        assert committed != (reissued == [0])
        assert trainer.ready([0]) == committed
        buffer.unlink()
    assert line > 5


def _crash_everywhere(
    prefix: str, prepare: Callable[[RolloutBuffer], None], move: str, traced: str, args: tuple[object, ...]
) -> list[dict]:
    """Die before every line of `traced` during a move, in a fresh buffer each; returns the counts others then see."""
    outcomes, line, finished = [], 0, False
    while not finished:
        line += 1
        buffer = RolloutBuffer.create(f"{prefix}.{move}{line}", SHAPE)
        prepare(buffer)
        with contextlib.suppress(Crash), at_line(getattr(RolloutBuffer, traced), line, crash) as seen:
            getattr(buffer, move)(*args)
        finished = len(seen) < line
        other = RolloutBuffer.attach(buffer.path)
        outcomes.append(other.counts())
        other.reissue(5)
        if other.counts()["free"] == 4:
            issue(other, 0)
        if not other.ready([0]):
            assert complete(other) == 0
        assert other.view(0)["prompt_index"] == 100
        other.free([0])
        assert other.counts()["free"] == 4
        buffer.unlink()
    return outcomes


def _claimed(buffer: RolloutBuffer) -> None:
    issue(buffer, 0)
    buffer.claim(5, 0)


def _ready(buffer: RolloutBuffer) -> None:
    _claimed(buffer)
    buffer.commit(0)


@pytest.mark.parametrize(
    ("move", "args", "prepare", "before", "after"),
    [
        ("issue", (Ticket(0, 0), 100, 0), lambda buffer: None, "free", "issued"),
        ("claim", (5, 0), lambda buffer: issue(buffer, 0), "issued", "claimed"),
        ("commit", (0,), _claimed, "claimed", "ready"),
        ("free", ([0],), _ready, "ready", "free"),
        ("reissue", (5,), _claimed, "claimed", "issued"),
    ],
)
def test_death_at_any_line_of_a_move_leaves_the_slot_before_or_after_it(
    prefix: str, move: str, args: tuple[object, ...], prepare: Callable[[RolloutBuffer], None], before: str, after: str
) -> None:
    """A SIGKILL at any point: the slot is in the old or the new state, nothing is locked, and the run can go on."""
    outcomes = _crash_everywhere(prefix, prepare, move, "_put" if move == "issue" else move, args)
    states = [
        next(name for name in (before, after) if counts[name] == (4 if name == "free" else 1)) for counts in outcomes
    ]
    assert states[0] == before
    assert states[-1] == after
    assert states == sorted(states, key=[before, after].index)
