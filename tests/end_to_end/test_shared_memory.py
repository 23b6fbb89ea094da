"""Runs in a /dev/shm of the size that containers give, and two at the same time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scalerl_mini.runtime import segment
from tests.end_to_end.command import TINY, Launched, steps_done, timeless
from tests.end_to_end.conftest import Launch
from tests.end_to_end.small_disk import ELSEWHERE, may_mount
from tests.forked import Ancestor

pytestmark = pytest.mark.slow

MOUNT = f"mount -t tmpfs -o size=$0 tmpfs {segment.SHM_DIR}"


@pytest.mark.skipif(not may_mount(segment.SHM_DIR), reason="needs the right to mount a file system")
def test_a_small_shm_is_enough_or_files_are_used_and_it_is_said(tmp_path: Path) -> None:
    """One ancestor for both sizes: the second is mounted over the first."""
    with Ancestor((*ELSEWHERE, "sh", "-c", MOUNT + ' && exec "$@"', "64m")) as ancestor:
        for size, told in (("64m", False), ("64k", True)):
            folder = tmp_path / size
            if told:
                ancestor.ask(run=["sh", "-c", MOUNT, size])
            run = Launched(
                "--out", str(folder), settings=TINY, console=folder.with_suffix(".console"), ancestor=ancestor
            )
            code, text = run.end()
            assert code == 0, text
            assert ("/dev/shm is too small: " in text) == told
            assert steps_done(folder) == 6
            assert list(folder.glob("scalerl-*")) == []


def test_two_runs_at_the_same_time_do_not_meet(launch: Launch, tmp_path: Path) -> None:
    """Synchronous ones, so that each must be what it is alone: the same as the other, which has the same seed."""
    folders = [tmp_path / "one", tmp_path / "two"]
    runs = [launch("--out", str(folder), settings=(*TINY, "pipeline.k=0")) for folder in folders]
    for run, folder in zip(runs, folders, strict=True):
        run.wait_for(lambda folder=folder: steps_done(folder) >= 1, "the first step")  # type: ignore[misc]
    for run in runs:
        code, text = run.end()
        assert code == 0, text
        assert run.left_behind() == []
    for name in ("steps.jsonl", "evals.jsonl"):
        assert timeless(folders[0] / name) == timeless(folders[1] / name)
    assert all("deaths" not in json.loads((folder / "run.json").read_text()) for folder in folders)
