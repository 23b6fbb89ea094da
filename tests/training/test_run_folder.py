"""The run folder: what may be written where, and logs that a kill cannot spoil."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.row_log import append_row, read_rows
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.watch import RowFollower
from tests.training.checkpoints import made_up_checkpoint


def make_run(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.check(overwrite=False)
    with folder.lock():
        folder.create("seed = 0\n", {"state": "running"})
    return folder


def test_a_new_run_has_its_parts(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "deep" / "run")
    assert {path.name for path in folder.path.iterdir()} == {
        "config.toml", "run.json", "rollouts", "checkpoints", "logs",
    }  # fmt: skip
    assert folder.read_record() == {"state": "running"}


def test_changes_of_the_record_keep_the_rest(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    folder.update_record(state="finished", reason=None)
    assert folder.read_record() == {"state": "finished", "reason": None}
    assert not list(folder.path.glob("*.tmp"))


def test_overwriting_removes_everything_of_the_old_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    append_row(folder.steps, {"step": 1})
    (folder.checkpoints / "step-00001").mkdir()
    folder.check(overwrite=True)
    with folder.lock():
        folder.create("seed = 1\n", {"state": "running"})
    assert not folder.steps.exists()
    assert not list(folder.checkpoints.iterdir())
    assert folder.config.read_text() == "seed = 1\n"


def test_overwriting_through_a_link_leaves_what_links_point_to(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "real")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (folder.path / "link").symlink_to(elsewhere)
    (tmp_path / "alias").symlink_to(folder.path)
    alias = RunFolder(tmp_path / "alias")
    alias.check(overwrite=True)
    with alias.lock():
        alias.create("", {})
    assert (elsewhere / "precious").exists()
    assert not (folder.path / "link").exists()


@pytest.mark.parametrize(
    ("make", "overwrite", "message"),
    [
        (lambda path: path.write_text(""), False, "is a file"),
        (lambda path: (path / "letters").mkdir(parents=True), True, "not empty and not a run"),
        (make_run, False, "already holds a run"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_refused(tmp_path: Path, make, overwrite: bool, message: str) -> None:
    make(tmp_path / "out")
    with pytest.raises(UserError, match=message):
        RunFolder(tmp_path / "out").check(overwrite)


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    RunFolder(tmp_path).check(overwrite=False)


def test_a_folder_under_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"cannot create run folder .*choose another --out"),
        RunFolder(tmp_path / "file" / "run").lock(),
    ):
        pass


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    """Also not one that resumes and one that overwrites; and a killed one does not keep the folder."""
    folder = make_run(tmp_path / "run")
    hold = (
        "import sys, time, pathlib; from scalerl_mini.training.run_folder import RunFolder\n"
        "with RunFolder(pathlib.Path(sys.argv[1])).lock(): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(folder.path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="a run is going on in"), folder.lock():
            pass
        other.kill()
        other.wait()
        with folder.lock():
            pass


def test_a_rewind_keeps_what_is_later_aside(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    for step in (1, 2, 3):
        append_row(folder.steps, {"step": step})
        folder.write_rollouts(step, [{"prompt": str(step)}])
    with folder.steps.open("a") as file:
        file.write('{"step": 4, "lo')
    append_row(folder.evals, {"step": 0})
    append_row(folder.evals, {"step": 3})
    for version in (0, 2, 3):
        made_up_checkpoint(folder.path, version)
    assert folder.rewind(2) == {"steps": 2, "evals": 1}
    append_row(folder.steps, {"step": 3, "again": True})
    assert read_rows(folder.steps) == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    assert read_rows(folder.evals) == [{"step": 0}]
    assert read_rows(folder.path / "steps.rewound.jsonl") == [{"step": 3}]
    assert read_rows(folder.path / "evals.rewound.jsonl") == [{"step": 3}]
    names = sorted(path.name for path in (folder.path / "rollouts").iterdir())
    assert names == ["step-00001.jsonl", "step-00002.jsonl", "step-00003.rewound.jsonl"]
    assert [path.name for path in list_checkpoints(folder.checkpoints)] == ["step-00002", "step-00000"]
    assert (folder.checkpoints / "step-00003.damaged" / "trainer.json").exists()
    folder.rewind(0)
    assert read_rows(folder.path / "steps.rewound.jsonl")[1:] == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    assert read_rows(folder.evals) == [{"step": 0}]


@pytest.mark.parametrize("content", ["", "{", "\x00\x00", "[1]"])
def test_a_spoilt_record_is_named(tmp_path: Path, content: str) -> None:
    folder = make_run(tmp_path / "run")
    (folder.path / "run.json").write_text(content)
    with pytest.raises(UserError, match=r"cannot read .*run\.json .*restore it"):
        folder.update_record(state="running")
    assert (folder.path / "run.json").read_text() == content


def test_the_end_of_a_run_is_told_even_where_it_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_run(tmp_path / "run")
    folder.note(state="stopped", reason="interrupted")
    assert folder.read_record() == {"state": "stopped", "reason": "interrupted"}
    shutil.rmtree(folder.path)
    folder.note(state="failed", reason="trainer died")
    (line,) = caplog.messages
    assert line.startswith("not in run.json: state = failed, reason = trainer died (")


def test_a_follower_sees_each_row_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    follower = RowFollower(path)
    assert follower.new_rows() == []
    append_row(path, {"step": 1})
    text = json.dumps({"step": 2, "text": "ü" * 10}, ensure_ascii=False).encode() + b"\n"
    seen = []
    for byte in text:  # every place where a writer can be overtaken, in the midst of a character too
        with path.open("ab") as file:
            file.write(bytes([byte]))
        seen.append(follower.new_rows())
    assert seen == [[{"step": 1}], *[[]] * (len(text) - 2), [{"step": 2, "text": "ü" * 10}]]
    append_row(path, {"step": 3})
    append_row(path, {"step": 4})
    assert follower.new_rows() == [{"step": 3}, {"step": 4}]
    assert follower.new_rows() == []
