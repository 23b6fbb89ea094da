"""Whole runs on disks that fill up, are read-only, or lose a log: one clear line, and the last checkpoint goes on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.manifest import verify
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import TINY, Launched, steps_done
from tests.end_to_end.conftest import Launch
from tests.end_to_end.small_disk import FailingDisk, SmallDisk, may_fail, may_mount

pytestmark = pytest.mark.slow

STEPS = 12
SETTINGS = (*TINY, f"training.steps={STEPS}", "runtime.checkpoint_every=3", "evaluation.early_every=6")
needs_mount = pytest.mark.skipif(
    not may_mount(Path(tempfile.gettempdir())), reason="needs the right to mount a file system"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", "48m") as disk:
        yield disk


def started(disk: SmallDisk, console: Path, *arguments: str, settings: tuple[str, ...] = ()) -> Launched:
    return Launched(*arguments, settings=settings, console=console, ancestor=disk.ancestor)


def one_line(text: str, *parts: str) -> None:
    """The output says all of `parts`, without a traceback; a terminal may break its lines anywhere, in a long path too."""
    told = "".join(text.split())
    assert all("".join(part.split()) in told for part in parts), text
    assert "Traceback" not in text


def goes_on(folder: Path, done: int) -> None:
    """The newest checkpoint is whole and not older than one period."""
    newest = list_checkpoints(folder / "checkpoints")[0]
    verify(newest)
    assert int(newest.name.removeprefix("step-")) >= done - 3


def finished(folder: Path) -> None:
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
    assert [row["step"] for row in read_rows(folder / "steps.jsonl")] == list(range(1, STEPS + 1))
    assert [row["step"] for row in read_rows(folder / "evals.jsonl")] == [0, 6, 12]


@needs_mount
def test_a_full_disk_ends_the_run_and_with_room_it_goes_on(disk: SmallDisk, tmp_path: Path) -> None:
    folder = disk.seen / "run"
    run = started(disk, tmp_path / "first", "--out", str(disk.path / "run"), settings=SETTINGS)
    run.wait_for(lambda: len(list_checkpoints(folder / "checkpoints")) > 0, "a checkpoint")
    disk.fill()
    code, text = run.end()
    assert code == 1, text
    one_line(text, "failed: cannot write ", "no space left on device; free disk space, then go on with train --resume")
    assert run.left_behind() == []
    done = steps_done(folder)
    assert done < STEPS
    goes_on(folder, done)
    code, text = started(disk, tmp_path / "full", "--resume", str(disk.path / "run")).end()
    assert code in (1, 2), text
    one_line(text, "o space left on device")
    disk.free()
    code, text = started(disk, tmp_path / "second", "--resume", str(disk.path / "run")).end()
    assert code == 0, text
    finished(folder)


@needs_mount
def test_a_read_only_disk_is_refused_and_nothing_on_it_changes(disk: SmallDisk, tmp_path: Path) -> None:
    folder = disk.seen / "run"
    settings = (*SETTINGS, "training.steps=3")
    code, text = started(disk, tmp_path / "first", "--out", str(disk.path / "run"), settings=settings).end()
    assert code == 0, text
    disk.remount("ro")
    more = ("--set", f"training.steps={STEPS}")
    for number, arguments in enumerate(
        [("--out", str(disk.path / "new")), ("--resume", str(disk.path / "run"), *more)]
    ):
        code, text = started(disk, tmp_path / f"refused-{number}", *arguments).end()
        assert code in (1, 2), text
        one_line(text, "ead-only file system" if arguments[0] == "--resume" else f"cannot write to {disk.path}")
    assert [path.name for path in disk.seen.iterdir()] == ["run"]
    goes_on(folder, 3)
    disk.remount("rw")
    code, text = started(disk, tmp_path / "second", "--resume", str(disk.path / "run"), *more).end()
    assert code == 0, text
    assert steps_done(folder) == STEPS


@pytest.fixture(params=[SmallDisk, FailingDisk])
def failing_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    kind, place = request.param, tmp_path / "try"
    place.mkdir()
    if not (may_fail(place) if kind is FailingDisk else may_mount(place)):
        pytest.skip("needs the right to mount such a file system")
    with kind(tmp_path / "disk", "48m") as disk:
        yield disk


def test_a_disk_that_turns_read_only_ends_the_run_and_mended_it_goes_on(
    failing_disk: SmallDisk, tmp_path: Path
) -> None:
    folder, out = failing_disk.seen / "run", str(failing_disk.path / "run")
    run = started(failing_disk, tmp_path / "first", "--out", out, settings=SETTINGS)
    run.wait_for(lambda: len(list_checkpoints(folder / "checkpoints")) > 0, "a checkpoint")
    failing_disk.fail()
    code, text = run.end()
    assert code == 1, text
    one_line(
        text, "failed: cannot write ", "read-only file system; make the disk writable, then go on with train --resume"
    )
    assert run.left_behind() == []
    done = steps_done(folder)
    assert done < STEPS
    goes_on(folder, done)
    code, text = started(failing_disk, tmp_path / "read-only", "--resume", out).end()
    assert code in (1, 2), text
    one_line(text, "ead-only file system")
    failing_disk.mend()
    code, text = started(failing_disk, tmp_path / "second", "--resume", out).end()
    assert code == 0, text
    finished(folder)


def test_a_log_that_disappears_is_noticed_and_its_run_goes_on(launch: Launch, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = launch("--out", str(folder), settings=SETTINGS)
    run.wait_for(lambda: steps_done(folder) >= 4, "four steps")
    kept = (folder / "steps.jsonl").rename(folder / "lost.jsonl")
    code, text = run.end()
    assert code == 1, text
    one_line(text, "steps.jsonl was deleted while the run went on; put it back if you can")
    assert run.left_behind() == []
    goes_on(folder, len(read_rows(kept)))
    kept.rename(folder / "steps.jsonl")
    code, text = launch("--resume", str(folder)).end()
    assert code == 0, text
    finished(folder)
