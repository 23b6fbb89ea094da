"""Invariant 9 with a real launcher: whatever ends it, no process and no segment is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.support import alive, eventually

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
Started = tuple[subprocess.Popen[bytes], dict[str, Any]]


class Launchers:
    """Starts launchers in sessions of their own, with a private folder of shared memory in common."""

    def __init__(self, folder: Path, shm: Path) -> None:
        self.folder, self.shm = folder, shm
        self.started: list[Started] = []

    def start(self, *functions: str, grace_s: float = 60.0) -> Started:
        folder = self.folder / f"run-{len(self.started)}"
        folder.mkdir()
        arguments = [str(self.shm), str(folder), str(grace_s), *functions]
        command = [sys.executable, "-m", "tests.runtime.launcher", *arguments]
        errors = (folder / "stderr.txt").open("w")
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=errors)
        errors.close()
        eventually(lambda: (folder / "ready.json").exists() or process.poll() is not None, "the launcher is ready")
        state = json.loads((folder / "ready.json").read_text())
        self.started.append((process, state))
        logs = [folder / f"{function}-{index}.log" for index, function in enumerate(functions)]
        eventually(lambda: all(log.exists() for log in logs), "the roles run")
        return process, state

    def errors(self, run: int = 0) -> str:
        return (self.folder / f"run-{run}" / "stderr.txt").read_text()

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.shm.iterdir())


@pytest.fixture
def launchers(tmp_path: Path) -> Iterator[Launchers]:
    with tempfile.TemporaryDirectory(prefix="test-scalerl-", dir="/dev/shm") as shm:
        launchers = Launchers(tmp_path, Path(shm))
        yield launchers
        for process, state in launchers.started:
            process.kill()
            process.wait()
            _nobody_left(state)


def _nobody_left(state: dict[str, Any], seconds: float = 10.0) -> None:
    eventually(lambda: not any(alive(pid) for pid in state["pids"]), "the children are gone", seconds)


def test_ctrl_c_to_the_whole_terminal_ends_in_order(launchers: Launchers) -> None:
    process, state = launchers.start("work_until_stopped", "work_until_stopped")
    assert launchers.segments() == [state["prefix"] + ".control"]
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert launchers.errors() == ""
    assert not any(alive(pid) for pid in state["pids"])
    assert launchers.segments() == []
    for log in launchers.folder.glob("run-0/*.log"):
        assert log.read_text().endswith("the run is stopping (interrupt)\n")


def test_ctrl_c_ends_also_those_who_do_not_listen(launchers: Launchers) -> None:
    process, state = launchers.start("refuse_to_stop", "ignore_the_flag", grace_s=0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not any(alive(pid) for pid in state["pids"])
    assert launchers.segments() == []


def test_a_killed_launcher_takes_its_children_along_and_the_next_start_clears_up(launchers: Launchers) -> None:
    process, state = launchers.start("work_until_stopped", "refuse_to_stop", "hang")
    process.kill()
    process.wait()
    _nobody_left(state)
    assert launchers.segments() == [state["prefix"] + ".control"]
    _, following = launchers.start("work_until_stopped")
    assert following["cleared"] == [state["prefix"] + ".control"]
    assert launchers.segments() == [following["prefix"] + ".control"]


def test_a_new_start_leaves_a_living_run_alone(launchers: Launchers) -> None:
    first, first_state = launchers.start("work_until_stopped")
    second, second_state = launchers.start("work_until_stopped")
    assert second_state["cleared"] == []
    assert len(launchers.segments()) == 2
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 130
    assert launchers.segments() == [first_state["prefix"] + ".control"]
    assert all(alive(pid) for pid in first_state["pids"])
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    assert launchers.segments() == []


def test_a_failing_child_ends_the_launcher_with_the_cause_and_nothing_left(launchers: Launchers) -> None:
    process, state = launchers.start("work_until_stopped", "hang")
    os.kill(state["pids"][1], signal.SIGKILL)
    assert process.wait(60) == 1
    assert launchers.errors().startswith("hang-1 was killed by SIGKILL (log: ")
    assert not any(alive(pid) for pid in state["pids"])
    assert launchers.segments() == []
