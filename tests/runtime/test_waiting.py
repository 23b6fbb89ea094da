from __future__ import annotations

import threading
import time

import pytest

from scalerl_mini.runtime import waiting
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.waiting import Stopped, WaitTimeout, wait_until


class Clock:
    """A monotonic clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def control(prefix: str) -> Control:
    return Control.create(prefix + ".control", ["trainer", "generator-0", "generator-1"])


def test_what_already_holds_is_not_waited_for(clock: Clock, control: Control) -> None:
    assert wait_until(lambda: True, "it", control=control, role="trainer", deadline_s=1, who=[]) == 0
    assert clock.sleeps == []


def test_it_returns_the_seconds_waited_and_polls_ever_more_slowly(clock: Clock, control: Control) -> None:
    end = clock.now + 0.5
    waited = wait_until(lambda: clock.now >= end, "it", control=control, role="trainer", deadline_s=1, who=[])
    assert waited == pytest.approx(0.5, abs=waiting.LONGEST_SLEEP_S)
    assert clock.sleeps[0] == waiting.FIRST_SLEEP_S
    assert clock.sleeps == sorted(clock.sleeps)
    assert max(clock.sleeps) == waiting.LONGEST_SLEEP_S == 0.002


def test_the_heart_beats_while_it_waits_and_the_stage_comes_back(clock: Clock, control: Control) -> None:
    control.beat("trainer", Stage.TRAINING)
    seen: list[tuple[Stage, float]] = []

    def third_time() -> bool:
        seen.append((control.stage("trainer"), control.last_beat("trainer")))
        return len(seen) == 4

    wait_until(third_time, "it", control=control, role="trainer", deadline_s=1, who=[])
    stages, beats = zip(*seen, strict=True)
    assert stages == (Stage.TRAINING, Stage.WAITING, Stage.WAITING, Stage.WAITING)
    assert list(beats[1:]) == sorted(set(beats[1:]))
    assert control.stage("trainer") == Stage.TRAINING
    assert control.last_beat("trainer") == clock.now


def test_the_deadline_names_the_wait_and_everybody_who_is_late(clock: Clock, control: Control) -> None:
    control.beat("generator-0", Stage.GENERATING)
    control.beat("generator-1", Stage.LOADING)
    with pytest.raises(WaitTimeout) as caught:
        wait_until(
            lambda: False,
            "batch 12 (sequences 36-38)",
            control=control,
            role="trainer",
            deadline_s=3.2,
            who=["generator-0", "generator-1"],
        )
    assert str(caught.value) == (
        "trainer waited 3.2 s for batch 12 (sequences 36-38); late: "
        "generator-0 last seen GENERATING 3.2 s ago; generator-1 last seen LOADING 3.2 s ago"
    )


def test_the_deadline_is_counted_from_the_start_of_who_takes_over(clock: Clock, control: Control) -> None:
    """A generator that dies in the last second of the trainer's patience is replaced; its successor gets all of it."""
    born = clock.now

    def replaced() -> bool:
        if born + 0.9 <= clock.now < born + 0.905:
            control.start("generator-0")
        return False

    with pytest.raises(WaitTimeout):
        wait_until(replaced, "it", control=control, role="trainer", deadline_s=1, who=["generator-0", "generator-1"])
    assert 1.9 < clock.now - born < 2.0


@pytest.mark.parametrize("holds", [True, False])
def test_a_stop_ends_every_wait(clock: Clock, control: Control, holds: bool) -> None:
    control.request_stop("interrupt")
    with pytest.raises(Stopped, match="interrupt") as caught:
        wait_until(lambda: holds, "it", control=control, role="trainer", deadline_s=1, who=[])
    assert caught.value.reason == "interrupt"
    assert clock.sleeps == []


def test_a_stop_from_elsewhere_ends_a_wait_that_has_begun(control: Control) -> None:
    timer = threading.Timer(0.05, control.request_stop, ["failure"])
    timer.start()
    with pytest.raises(Stopped, match="failure"):
        wait_until(lambda: False, "it", control=control, role="trainer", deadline_s=60, who=[])
    timer.join()
