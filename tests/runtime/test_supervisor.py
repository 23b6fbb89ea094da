from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.supervisor import ChildFailed, Role, Supervisor, last_words
from tests.runtime import processes
from tests.runtime.support import alive, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def control(prefix: str) -> Control:
    return Control.create(prefix + ".control", ["one", "two"])


def _supervisor(control: Control, folder: Path, *roles: Role, heartbeat_timeout_s: float = 60.0) -> Supervisor:
    return Supervisor(list(roles), control, folder / "logs", heartbeat_timeout_s, grace_s=20.0)


def _worker(control: Control, name: str) -> Role:
    return Role(name, processes.work_until_stopped, (name, control.path))


def _poll_to_the_end(supervisor: Supervisor) -> None:
    eventually(supervisor.poll, "all roles ended with 0")


def _run(supervisor: Supervisor, during: Callable[[], None] = lambda: None) -> None:
    with supervisor:
        during()
        _poll_to_the_end(supervisor)


def _at_work(control: Control, name: str, stage: Stage = Stage.WAITING) -> None:
    eventually(lambda: control.stage(name) == stage, f"{name} is {stage.name}")


def test_roles_that_end_with_zero_end_the_run(control: Control, tmp_path: Path) -> None:
    roles = [Role("one", processes.end_well, ("one",)), Role("two", processes.stop_with, ("finished",))]
    with _supervisor(control, tmp_path, *roles) as supervisor:
        _poll_to_the_end(supervisor)
        assert supervisor.poll()
    assert supervisor.log_path("one").read_text() == "one is done\n"
    assert "two: the run is stopping (finished)" in supervisor.log_path("two").read_text()
    assert control.stage("one") == control.stage("two") == Stage.DONE
    assert control.stop_reason == "finished"


def test_poll_is_false_while_somebody_works_and_stop_ends_it_in_order(control: Control, tmp_path: Path) -> None:
    roles = [_worker(control, "one"), Role("two", processes.end_well, ("two",))]
    with _supervisor(control, tmp_path, *roles) as supervisor:
        _at_work(control, "one")
        _at_work(control, "two", Stage.DONE)
        pid = supervisor.pid("one")
        assert not supervisor.poll()
        assert alive(pid)
        supervisor.stop(20.0, "interrupt")
        assert not alive(pid)
        assert supervisor.poll()
    assert supervisor.log_path("one").read_text() == "one at work\none: the run is stopping (interrupt)\n"
    assert control.stop_reason == "interrupt"


def test_a_killed_child_is_named_and_the_other_is_taken_down(control: Control, tmp_path: Path) -> None:
    supervisor = _supervisor(control, tmp_path, _worker(control, "one"), _worker(control, "two"))

    def kill_two() -> None:
        _at_work(control, "two")
        os.kill(supervisor.pid("two"), signal.SIGKILL)

    with pytest.raises(ChildFailed, match="two was killed by SIGKILL") as caught:
        _run(supervisor, kill_two)
    assert (caught.value.role, caught.value.cause) == ("two", "was killed by SIGKILL")
    assert control.stop_reason == "failure"
    assert not alive(supervisor.pid("one"))
    assert not alive(supervisor.pid("two"))


def test_an_exception_is_told_with_its_last_traceback(control: Control, tmp_path: Path) -> None:
    supervisor = _supervisor(control, tmp_path, Role("one", processes.fail, ("one",)))
    supervisor.log_dir.mkdir()
    supervisor.log_path("one").write_text("Traceback (most recent call last):\n  of an earlier attempt\n")
    with pytest.raises(ChildFailed) as caught:
        _run(supervisor)
    message = str(caught.value)
    assert message.startswith(f"one exited with 1 (log: {supervisor.log_path('one')})\nTraceback")
    assert message.endswith("RuntimeError: one has no idea what to do")
    assert message.count("Traceback") == 1
    assert "earlier attempt" in supervisor.log_path("one").read_text()


def test_a_traceback_of_an_earlier_attempt_is_not_given_as_the_cause(control: Control, tmp_path: Path) -> None:
    supervisor = _supervisor(control, tmp_path, Role("one", processes.exit_with, (3,)))
    supervisor.log_dir.mkdir()
    supervisor.log_path("one").write_text("Traceback (most recent call last):\n  of an earlier attempt\n")
    with pytest.raises(ChildFailed) as caught:
        _run(supervisor)
    assert str(caught.value) == f"one exited with 3 (log: {supervisor.log_path('one')})"


@pytest.mark.parametrize(
    ("target", "args", "cause", "tail"),
    [
        (processes.exit_with, (3,), "exited with 3", ""),
        (processes.crash_hard, (), "was killed by SIGSEGV", "Fatal Python error: Segmentation fault"),
        ("tests.runtime.no_such_module:main", (), "exited with 1", "ModuleNotFoundError"),
        ("tests.runtime.processes:no_such_function", (), "exited with 1", "AttributeError"),
    ],
)
def test_every_way_to_fail_has_its_cause(
    control: Control, tmp_path: Path, target: object, args: tuple[object, ...], cause: str, tail: str
) -> None:
    supervisor = _supervisor(control, tmp_path, Role("one", target, args))  # type: ignore[arg-type]
    with pytest.raises(ChildFailed) as caught:
        _run(supervisor)
    assert caught.value.cause == cause
    assert tail in caught.value.log_tail


def test_a_stopped_process_misses_its_heartbeat(control: Control, tmp_path: Path) -> None:
    supervisor = _supervisor(control, tmp_path, _worker(control, "one"), heartbeat_timeout_s=0.7)

    def freeze() -> None:
        _at_work(control, "one")
        os.kill(supervisor.pid("one"), signal.SIGSTOP)

    message = r"one was silent in stage WAITING \(one last seen WAITING \d\.\d s ago\)"
    with pytest.raises(ChildFailed, match=message):
        _run(supervisor, freeze)
    assert not alive(supervisor.pid("one"))


def test_a_hanging_process_shows_where_it_hangs(control: Control, tmp_path: Path) -> None:
    role = Role("one", processes.hang, ("one", control.path))
    with pytest.raises(ChildFailed, match="one was silent in stage TRAINING") as caught:
        _run(_supervisor(control, tmp_path, role, heartbeat_timeout_s=0.7))
    assert "in hang" in caught.value.log_tail


def test_the_most_overdue_is_blamed(control: Control, tmp_path: Path) -> None:
    """A process frozen while it holds a lock makes others silent; they are not the cause."""
    roles = [_worker(control, "one"), _worker(control, "two")]
    supervisor = Supervisor(roles, control, tmp_path, heartbeat_timeout_s=1.0, grace_s=0.0)

    def freeze_both_and_let_both_be_overdue() -> None:
        for name in ("two", "one"):
            _at_work(control, name)
            os.kill(supervisor.pid(name), signal.SIGSTOP)
            time.sleep(0.1)
        while time.monotonic() - control.last_beat("one") < 1.2:
            supervisor._last_poll = time.monotonic()
            time.sleep(0.05)

    with pytest.raises(ChildFailed) as caught:
        _run(supervisor, freeze_both_and_let_both_be_overdue)
    assert caught.value.role == "two"


def test_starting_may_take_longer_than_a_heartbeat(control: Control, tmp_path: Path) -> None:
    supervisor = Supervisor(
        [Role("one", "time:sleep", (600,))], control, tmp_path, 0.1, start_timeout_s=1.0, grace_s=0.0
    )
    born = time.monotonic()
    with pytest.raises(ChildFailed, match="one was silent in stage STARTING"):
        _run(supervisor)
    assert time.monotonic() - born > 1.0


def test_after_ctrl_z_nobody_is_blamed_for_having_been_asleep(control: Control, tmp_path: Path) -> None:
    with _supervisor(control, tmp_path, _worker(control, "one"), heartbeat_timeout_s=1.0) as supervisor:
        _at_work(control, "one")
        supervisor.poll()
        os.kill(supervisor.pid("one"), signal.SIGSTOP)
        time.sleep(1.5)
        assert not supervisor.poll()
        os.kill(supervisor.pid("one"), signal.SIGCONT)
        seen = control.last_beat("one")
        eventually(lambda: control.last_beat("one") > seen, "one beats again")
        assert not supervisor.poll()


def test_who_does_not_stop_is_killed(control: Control, tmp_path: Path) -> None:
    role = Role("one", processes.refuse_to_stop, ("one", control.path))
    with _supervisor(control, tmp_path, role) as supervisor:
        pid = supervisor.pid("one")
        _at_work(control, "one", Stage.GENERATING)
        supervisor.stop(0.1)
        assert not alive(pid)
        with pytest.raises(ChildFailed, match="one was killed by SIGKILL"):
            supervisor.poll()


def test_output_goes_to_the_log_at_the_level_of_descriptors(control: Control, tmp_path: Path) -> None:
    with _supervisor(control, tmp_path, Role("one", processes.write_to_the_descriptors)) as supervisor:
        _poll_to_the_end(supervisor)
    assert supervisor.log_path("one").read_text() == "from C, to stdout\nfrom C, to stderr\nfrom a program\n"


def test_ctrl_c_at_any_time_from_birth_is_not_for_the_child(control: Control, tmp_path: Path) -> None:
    with _supervisor(control, tmp_path, _worker(control, "one")) as supervisor:
        end = time.monotonic() + 60
        while control.stage("one") == Stage.STARTING:
            os.kill(supervisor.pid("one"), signal.SIGINT)
            time.sleep(0.001)
            assert time.monotonic() < end
        assert not supervisor.poll()
    assert "KeyboardInterrupt" not in supervisor.log_path("one").read_text()
    assert supervisor.poll()


def test_a_second_ctrl_c_cuts_the_grace_short_but_leaves_nobody(control: Control, tmp_path: Path) -> None:
    role = Role("one", processes.refuse_to_stop, ("one", control.path))
    with _supervisor(control, tmp_path, role) as supervisor:
        pid = supervisor.pid("one")
        _at_work(control, "one", Stage.GENERATING)
        timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            supervisor.stop(600.0)
        timer.join()
        assert not alive(pid)


def test_a_death_in_the_middle_of_a_poll_is_not_taken_for_an_end(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _supervisor(control, tmp_path, _worker(control, "one")) as one:

        def die() -> None:
            os.kill(one.pid("one"), signal.SIGKILL)
            eventually(lambda: not alive(one.pid("one")), "the child is dead")

        _at_work(control, "one")
        monkeypatch.setattr(one, "_check_heartbeats", die)
        assert not one.poll()
        monkeypatch.undo()
        with pytest.raises(ChildFailed, match="SIGKILL"):
            _poll_to_the_end(one)  # its leader may be a zombie before its last thread is gone


def test_a_start_that_fails_half_way_leaves_nobody(control: Control, tmp_path: Path) -> None:
    supervisor = _supervisor(control, tmp_path, _worker(control, "one"), Role("two", lambda: None))
    with pytest.raises(ValueError, match=r"two: .* cannot be imported by a spawned process"):
        _run(supervisor)
    assert not alive(supervisor.pid("one"))


def test_two_supervisors_at_once_do_not_disturb_each_other(control: Control, prefix: str, tmp_path: Path) -> None:
    other = Control.create(prefix + ".other", ["one"])
    with _supervisor(control, tmp_path / "a", _worker(control, "one")) as first:
        with _supervisor(other, tmp_path / "b", _worker(other, "one")) as second:
            _at_work(control, "one")
            _at_work(other, "one")
            assert first.pid("one") != second.pid("one")
        assert not alive(second.pid("one"))
        assert alive(first.pid("one"))
        assert not first.poll()
    assert not alive(first.pid("one"))


@pytest.mark.parametrize("target", [lambda: None, Control.beat])
def test_a_function_that_cannot_be_imported_is_refused(target: object) -> None:
    with pytest.raises(ValueError, match="cannot be imported"):
        _ = Role("one", target).entry  # type: ignore[arg-type]


def test_a_child_whose_parent_died_before_it_could_tell_ends_at_once() -> None:
    code = "from tests.runtime.processes import orphan_at_birth; orphan_at_birth()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1


def test_last_words_of_a_log_without_a_traceback(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none.log") == ""
    (tmp_path / "a.log").write_text("\n".join(map(str, range(100))) + "\n")
    assert last_words(tmp_path / "a.log", lines=3) == "97\n98\n99"
    assert last_words(tmp_path / "a.log", start=10**6) == ""
