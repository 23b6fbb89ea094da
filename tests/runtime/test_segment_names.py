from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.runtime import segment, segment_names
from scalerl_mini.runtime.segment_names import clear_stale, run_prefix, start_time, unlink_all
from tests.runtime.support import eventually


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder in place of /dev/shm."""
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path)
    return tmp_path


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_prefixes_are_unique_and_name_this_process() -> None:
    first, second = run_prefix(), run_prefix()
    assert first != second
    assert first.split("-")[:3] == ["scalerl", str(os.getpid()), str(start_time(os.getpid()))]


def test_start_time_is_stable_and_tells_processes_apart() -> None:
    assert start_time(os.getpid()) == start_time(os.getpid())
    assert start_time(os.getpid()) != start_time(1)
    assert start_time(_dead_pid()) is None


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    eventually(lambda: start_time(process.pid) is None, "an exited, unreaped process counts as dead")
    assert process.wait() == 0


def test_stale_segments_go_and_living_and_foreign_ones_stay(shm: Path) -> None:
    living = run_prefix()
    pid, start, namespace = living.split("-")[1:4]
    reused = f"scalerl-{pid}-{int(start) + 1}-{namespace}-00000000.rollouts"
    dead = f"scalerl-{_dead_pid()}-{start}-{namespace}-00000000.weights"
    container = f"scalerl-{_dead_pid()}-{start}-{int(namespace) + 1}-00000000.weights"
    strange = "scalerl-notes.txt"
    _touch(shm, living, living + ".rollouts", reused, dead, container, strange, "psm_1234")
    assert sorted(clear_stale()) == sorted([reused, dead])
    assert _names(shm) == {living, living + ".rollouts", container, strange, "psm_1234"}
    assert clear_stale() == []


def test_stale_files_in_the_fallback_folder_go_too(shm: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    disk = tmp_path_factory.mktemp("disk")
    dead = run_prefix().replace(str(os.getpid()), str(_dead_pid()), 1)
    _touch(disk, dead, run_prefix())
    assert clear_stale() == []
    assert clear_stale(disk) == [dead]
    assert len(_names(disk)) == 1


def test_another_users_segment_is_no_error(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(shm, run_prefix().replace(str(os.getpid()), str(_dead_pid()), 1))

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    assert clear_stale() == []


def test_unlink_all_takes_one_run_only(shm: Path) -> None:
    mine, other = run_prefix(), run_prefix()
    _touch(shm, mine + ".rollouts", mine + ".weights", mine + "0.weights", other + ".weights")
    unlink_all(mine)
    assert _names(shm) == {mine + "0.weights", other + ".weights"}


def test_a_run_without_dev_shm_has_nothing_to_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_names.segment, "SHM_DIR", tmp_path / "missing")
    assert clear_stale() == []
