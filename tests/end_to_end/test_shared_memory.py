"""Runs in a /dev/shm of the size that containers give, and two at the same time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.runtime import segment
from tests.end_to_end.command import ENTRY, TINY, Launched, steps_done, timeless

pytestmark = pytest.mark.heavy


def may_mount() -> bool:
    """Whether this process may put another /dev/shm in the place of the machine's, for itself alone."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(segment.SHM_DIR)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a file system")
@pytest.mark.parametrize(("size", "told"), [("64m", False), ("64k", True)])
def test_a_small_shm_is_enough_or_files_are_used_and_it_is_said(tmp_path: Path, size: str, told: bool) -> None:
    folder = tmp_path / "run"
    words = [word for setting in TINY for word in ("--set", setting)]
    mount = f'mount -t tmpfs -o size={size} tmpfs {segment.SHM_DIR} && exec "$@"'
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        mount,
        "sh",
        sys.executable,
        "-c",
        ENTRY,
        "train",
        "--out",
        str(folder),
    ]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert ("/dev/shm is too small: " in done.stderr) == told
    assert steps_done(folder) == 6
    assert list(folder.glob("scalerl-*")) == []


def test_two_runs_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    """Synchronous ones, so that each must be what it is alone: the same as the other, which has the same seed."""
    folders = [tmp_path / "one", tmp_path / "two"]
    runs = [Launched("--out", str(folder), settings=(*TINY, "pipeline.k=0")) for folder in folders]
    for run, folder in zip(runs, folders, strict=True):
        run.wait_for(lambda folder=folder: steps_done(folder) >= 1, "the first step")  # type: ignore[misc]
    for run in runs:
        code, text = run.end(240)
        assert code == 0, text
        assert run.left_behind() == []
    for name in ("steps.jsonl", "evals.jsonl"):
        assert timeless(folders[0] / name) == timeless(folders[1] / name)
    assert all("deaths" not in json.loads((folder / "run.json").read_text()) for folder in folders)
