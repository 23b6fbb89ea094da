"""A supervisor that starts a dead role again: who is blamed, who gets time to speak, and when nobody is started any more."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.supervisor import ChildFailed, Role, Supervisor
from tests.runtime import processes
from tests.runtime.support import alive, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def control(prefix: str) -> Control:
    return Control.create(prefix + ".control", ["one", "two"])


def death_of(supervisor: Supervisor) -> ChildFailed:
    """Poll until somebody dies."""
    with pytest.raises(ChildFailed) as caught:
        eventually(supervisor.poll, "all roles ended with 0")
    return caught.value


def worker(control: Control, name: str) -> Role:
    return Role(name, processes.work_until_stopped, (name, control.path))


def test_a_role_that_hung_is_started_again_and_ends_well(control: Control, tmp_path: Path) -> None:
    role = Role("one", processes.end_well_the_second_time, ("one", control.path, tmp_path / "mark"))
    with Supervisor([role, worker(control, "two")], control, tmp_path, 0.7) as supervisor:
        first, other = supervisor.pid("one"), supervisor.pid("two")
        control.add("one", "generated_tokens", 40)
        assert death_of(supervisor).role == "one"
        supervisor.restart("one")
        eventually(lambda: not supervisor.poll() and control.stage("one") == Stage.DONE, "it has ended")
        assert not alive(first)
        assert alive(other)
        assert supervisor.pid("two") == other
        assert control.get("one", "generated_tokens") == 40


def test_it_is_not_started_before_its_time_and_the_run_is_not_over_meanwhile(control: Control, tmp_path: Path) -> None:
    with Supervisor([Role("one", processes.exit_with, (1,))], control, tmp_path, 60.0) as supervisor:
        death_of(supervisor)
        supervisor.restart("one", delay_s=0.5)
        again = time.monotonic() + 0.5
        assert not supervisor.poll()
        assert control.stage("one") == Stage.STARTING
        assert death_of(supervisor).cause == "exited with 1"
        assert time.monotonic() > again


def test_nobody_is_started_when_the_run_is_ending(control: Control, tmp_path: Path) -> None:
    with Supervisor([Role("one", processes.exit_with, (1,))], control, tmp_path, 60.0) as supervisor:
        death_of(supervisor)
        control.request_stop("finished")
        supervisor.restart("one")
        assert supervisor.poll()


def test_who_waits_for_a_lock_is_not_to_blame_and_gets_time_to_speak(
    control: Control, prefix: str, tmp_path: Path
) -> None:
    """Role two took the lock, role one has been silent for longer, waiting for it."""
    lock = Segment.create(prefix + ".lock", 8)
    roles = [
        Role("one", processes.wait_for_the_lock, ("one", control.path, lock.path)),
        Role("two", processes.lock_and_hang, ("two", control.path, lock.path)),
    ]
    with Supervisor(roles, control, tmp_path, 1.5) as supervisor:
        waiter = supervisor.pid("one")
        eventually(lambda: not supervisor.poll() and control.stage("two") == Stage.GENERATING, "two has spoken last")
        assert control.last_beat("one") < control.last_beat("two")
        assert death_of(supervisor).role == "two"
        supervisor._children.pop("two")
        eventually(lambda: supervisor.poll() or control.stage("one") == Stage.WAITING, "one has the lock")
        assert supervisor.pid("one") == waiter
        assert alive(waiter)


def test_after_a_kill_the_others_have_time_to_speak(control: Control, tmp_path: Path) -> None:
    """Both frozen, for whatever reason: the second is given its full time after the first was killed."""
    with Supervisor(
        [worker(control, "one"), worker(control, "two")], control, tmp_path, 1.0, grace_s=0.0
    ) as supervisor:
        eventually(lambda: {control.stage(name) for name in ("one", "two")} == {Stage.WAITING}, "both at work")
        for name in ("one", "two"):
            os.kill(supervisor.pid(name), signal.SIGSTOP)
        first = death_of(supervisor).role
        killed = time.monotonic()
        supervisor._children.pop(first)
        assert {first, death_of(supervisor).role} == {"one", "two"}
        assert time.monotonic() - killed > 0.9


def test_a_stop_does_not_wait_for_somebody_who_is_frozen(control: Control, tmp_path: Path) -> None:
    with Supervisor([worker(control, "one")], control, tmp_path, 0.7) as supervisor:
        eventually(lambda: control.stage("one") == Stage.WAITING, "one is at work")
        pid = supervisor.pid("one")
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        supervisor.stop(600.0)
        assert not alive(pid)
        assert time.monotonic() - start < 60.0


@pytest.mark.parametrize(
    ("target", "again", "tail"),
    [
        (processes.refuse, True, "error: this needs more room"),
        (processes.find_out, True, "WouldComeAgain: the two sides disagree"),
        (processes.crash_hard, False, "Segmentation fault"),
    ],
)
def test_a_death_that_would_come_again_says_so(
    control: Control, tmp_path: Path, target: object, again: bool, tail: str
) -> None:
    with Supervisor([Role("one", target)], control, tmp_path, 60.0) as supervisor:  # type: ignore[arg-type]
        death = death_of(supervisor)
    assert death.again == again
    assert tail in death.log_tail


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_sent_to_the_whole_family_is_for_the_launcher(
    control: Control, tmp_path: Path, number: signal.Signals
) -> None:
    with Supervisor([worker(control, "one")], control, tmp_path, 60.0) as supervisor:
        eventually(lambda: control.stage("one") == Stage.WAITING, "one is at work")
        os.kill(supervisor.pid("one"), number)
        seen = control.last_beat("one")
        eventually(lambda: control.last_beat("one") > seen + 0.2, "one goes on")
        assert not supervisor.poll()
