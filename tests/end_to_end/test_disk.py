"""What the disk can do to a run: full, read-only, files that disappear. One clear line, the last checkpoint whole, nothing
left in shared memory, and the run goes on as soon as the disk is well again.

The small disk is a tmpfs in a mount namespace of its own, which only root may make.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalerl_mini.runtime import segment
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.manifest import verify
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import ENTRY, TINY, Launched, steps_done

pytestmark = pytest.mark.slow

EACH_STEP = (*TINY, "runtime.checkpoint_every=1", "runtime.keep_checkpoints=2", "training.steps=500")
can_mount = os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
needs_mount = pytest.mark.skipif(not can_mount, reason="only root can make a mount namespace")


def train(*arguments: str, settings: tuple[str, ...] = ()) -> str:
    """A shell command that trains."""
    words = [word for setting in settings for word in ("--set", setting)]
    return shlex.join([sys.executable, "-c", ENTRY, "train", *arguments, *words])


def on_small_disk(disk: Path, size: str, script: str, keep: Path) -> tuple[int, str]:
    """Run a shell script with a tmpfs of `size` on `disk`; afterwards what is on it is copied to `keep`. Its exit code and
    what it printed."""
    disk.mkdir()
    text = (
        f"mount -t tmpfs -o size={size} tmpfs {disk} || exit 99\n{script}\ncode=$?\ncp -a {disk}/. {keep}\nexit $code"
    )
    before = shared_memory()
    done = subprocess.run(["unshare", "-m", "sh", "-c", text], capture_output=True, text=True, timeout=900)
    assert shared_memory() <= before | others(), "shared memory is left behind"
    return done.returncode, done.stdout + done.stderr


def shared_memory() -> set[str]:
    return {path.name for path in segment.SHM_DIR.glob("scalerl-*")}


def others() -> set[str]:
    """Segments whose launcher is alive: other tests at the same time."""
    return {name for name in shared_memory() if Path(f"/proc/{name.split('-')[1]}").exists()}


def one_clear_line(text: str, *words: str) -> None:
    """The error, in one line, with the words in it, and no traceback around it."""
    assert "Traceback" not in text, text
    line = " ".join(text[text.rindex("failed: ") :].split())
    for word in words:
        assert word in line, text


def goes_on(run: Path, steps: int) -> None:
    """All checkpoints are whole, and with the newest of them the run can be finished."""
    found = list_checkpoints(run / "checkpoints")
    for checkpoint in found:
        verify(checkpoint)
    code, text = Launched("--resume", str(run), settings=(f"training.steps={version_of(found[0]) + steps}",)).end(600)
    assert code == 0, text
    rows = read_rows(run / "steps.jsonl")
    assert [row["step"] for row in rows] == list(range(1, version_of(found[0]) + steps + 1))


@needs_mount
def test_a_disk_that_fills_up_with_checkpoints(tmp_path: Path) -> None:
    """Room for two checkpoints and a half: the third save meets the end of the disk, wherever in it that is."""
    disk, keep = tmp_path / "disk", tmp_path / "kept"
    code, text = on_small_disk(disk, "10m", train("--out", f"{disk}/run", settings=EACH_STEP), keep)
    assert code == 1, text
    one_clear_line(text, f"cannot write {disk}/run/", "no space left on device", "free disk space", "train --resume")
    assert not list((keep / "run" / "checkpoints").glob(".step-*"))
    goes_on(keep / "run", 2)


@needs_mount
def test_a_disk_that_somebody_else_fills(tmp_path: Path) -> None:
    """Not one byte is left, for logs and run.json neither: the cause is told all the same."""
    disk, keep = tmp_path / "disk", tmp_path / "kept"
    settings = (*TINY, "training.steps=500", "runtime.checkpoint_every=2")
    fill = f"while [ ! -d {disk}/run/checkpoints/step-00002 ]; do sleep 0.1; done; cat /dev/zero > {disk}/filler 2>/dev/null"
    script = f"({fill}) & {train('--out', f'{disk}/run', settings=settings)}; code=$?; rm {disk}/filler; (exit $code)"
    code, text = on_small_disk(disk, "40m", script, keep)
    assert code == 1, text
    one_clear_line(text, f"cannot write {disk}/run/", "no space left on device", "free disk space", "train --resume")
    goes_on(keep / "run", 2)


@needs_mount
def test_a_disk_that_cannot_be_written_is_found_before_the_start(tmp_path: Path) -> None:
    disk, keep = tmp_path / "disk", tmp_path / "kept"
    run = disk / "run"
    script = "; ".join((
        train("--out", str(run), settings=(*TINY, "training.steps=1")),
        f"mount -o remount,ro {disk}",
        f"{train('--out', f'{disk}/other', settings=TINY)}; echo exit $?",
        f"{train('--resume', str(run), settings=('training.steps=2',))}; echo exit $?",
    ))  # fmt: skip
    _, text = on_small_disk(disk, "40m", script, keep)
    assert "Traceback" not in text
    assert "cannot write to" in text, text
    assert "read-only file system; make the disk writable" in text, text
    assert text.count("exit 2") == 2, text
    goes_on(keep / "run", 1)


@pytest.mark.parametrize(
    ("what", "word"),
    [("steps.jsonl", "was deleted"), ("", "no such file or directory; do not move or delete a run folder")],
)
def test_a_log_or_the_whole_folder_is_deleted_while_the_run_goes_on(tmp_path: Path, what: str, word: str) -> None:
    folder = tmp_path / "run"
    run = Launched("--out", str(folder), settings=(*TINY, "training.steps=500", "runtime.checkpoint_every=2"))
    run.wait_for(lambda: steps_done(folder) >= 3, "three steps", 600)
    if what:
        (folder / what).unlink()
    else:
        folder.rename(tmp_path / "elsewhere")
    code, text = run.end(600)
    assert code == 1, text
    one_clear_line(text, str(folder), word, "train --resume")
    assert run.left_behind() == []
    folder = folder if what else tmp_path / "elsewhere"
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        verify(checkpoint)
    assert list_checkpoints(folder / "checkpoints")
    if not what:
        goes_on(folder, 1)


def test_a_log_torn_in_the_middle_is_found_before_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = Launched("--out", str(folder), settings=(*TINY, "training.steps=500", "runtime.checkpoint_every=2"))
    run.wait_for(lambda: steps_done(folder) >= 3, "three steps", 600)
    os.kill(run.process.pid, signal.SIGKILL)
    run.end(600)
    time.sleep(0.5)
    lines = (folder / "steps.jsonl").read_bytes().splitlines(keepends=True)
    spoilt = b"".join([lines[0], lines[1][:40] + b"\n", *lines[2:]])
    (folder / "steps.jsonl").write_bytes(spoilt)
    code, text = Launched("--resume", str(folder)).end(600)
    assert code == 2
    assert "steps.jsonl, line 2 is not a row of this log; mend or delete that line" in " ".join(text.split())
    assert (folder / "steps.jsonl").read_bytes() == spoilt
    (folder / "steps.jsonl").write_bytes(b"".join(lines))
    goes_on(folder, 1)
