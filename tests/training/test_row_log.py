"""JSON Lines logs: whole after any kill, a full disk or a stranger's hand noticed, and nothing thrown away in silence."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.training import row_log
from scalerl_mini.training.row_log import RowLog, append_row, read_rows, rewind_rows
from scalerl_mini.training.watch import RowFollower


def test_rows_come_back_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, {"step": 1, "loss": math.nan, "by_level": {"hard": math.inf}})
    append_row(path, {"step": 2, "loss": -0.5, "text": "zwei\nZeilen, Ümläute"})
    assert read_rows(path) == [
        {"step": 1, "loss": None, "by_level": {"hard": None}},
        {"step": 2, "loss": -0.5, "text": "zwei\nZeilen, Ümläute"},
    ]
    assert len(path.read_bytes().splitlines()) == 2
    assert read_rows(tmp_path / "absent.jsonl") == []


@pytest.mark.parametrize("cut", [1, 7, 13])
def test_a_torn_last_row_is_skipped_by_readers(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, {"step": 1})
    append_row(path, {"step": 22222})
    path.write_bytes(path.read_bytes()[:-cut])
    if cut == 1:  # only the line's end is missing: the row itself is whole
        assert read_rows(path) == [{"step": 1}, {"step": 22222}]
    else:
        assert read_rows(path) == [{"step": 1}]


SPOILT = [b'{"step": 2, "lo', b"", b"[2]", b"null", b"\xff\xfe", b'{"step": 2}{"step": 3}']


@pytest.mark.parametrize("line", SPOILT)
def test_a_line_torn_further_up_is_named_and_nothing_is_lost(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    before = path.read_bytes()
    for read in (read_rows, lambda path: rewind_rows(path, 1), RowLog):
        with pytest.raises(UserError, match=r"steps\.jsonl, line 2 is not a row of this log; mend or delete"):
            read(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["steps.jsonl"]


def test_a_row_without_a_step_cannot_be_placed(tmp_path: Path) -> None:
    append_row(tmp_path / "steps.jsonl", {"loss": 1.0})
    with pytest.raises(UserError, match="line 1"):
        rewind_rows(tmp_path / "steps.jsonl", 0)


def test_a_follower_leaves_spoilt_lines_to_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"step": 1}\n{"st\n[2]\n\xff\n{"step": 3}\n')
    assert RowFollower(path).new_rows() == [{"step": 1}, {"step": 3}]


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    for part in range(2):
        log = RowLog(path)
        assert log.rows == 2 * part
        for step in (1, 2):
            log.append({"step": step, "loss": math.nan})
        log.flush()
    assert log.rows == 4
    assert read_rows(path) == [{"step": step, "loss": None} for step in (1, 2, 1, 2)]


def replace(path: Path) -> None:
    path.with_suffix(".new").write_bytes(path.read_bytes())
    os.replace(path.with_suffix(".new"), path)


INTRUSIONS: list[tuple[str, Callable[[Path], object]]] = [
    ("was deleted", Path.unlink),
    ("was replaced or changed", replace),
    ("was replaced or changed", lambda path: path.write_bytes(b"")),
    ("was replaced or changed", lambda path: append_row(path, {"step": 9})),
    ("was replaced or changed", lambda path: path.write_bytes(path.read_bytes()[:-1])),
]


@pytest.mark.parametrize(("what", "intrude"), INTRUSIONS)
def test_an_intruder_is_noticed_at_the_next_row(tmp_path: Path, what: str, intrude: Callable[[Path], object]) -> None:
    path = tmp_path / "steps.jsonl"
    log = RowLog(path)
    log.append({"step": 1})
    log.append({"step": 2})
    intrude(path)
    content = path.read_bytes() if path.exists() else None
    with pytest.raises(UserError, match=what + ".*put it back if you can, then go on with train --resume"):
        log.append({"step": 3})
    assert (path.read_bytes() if path.exists() else None) == content


def test_a_removed_folder_is_named(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "gone" / "steps.jsonl")
    with pytest.raises(
        UserError, match=r"cannot write .*no such file or directory; do not move or delete a run folder"
    ):
        log.append({"step": 1})


def test_a_write_that_stops_short_leaves_no_torn_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps.jsonl"
    log = RowLog(path)
    log.append({"step": 1})

    def write_a_part(descriptor: int, line: bytes) -> None:
        os.write(descriptor, line[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(row_log, "_write_all", write_a_part)
        with pytest.raises(UserError, match="no space left on device; free disk space, then go on"):
            log.append({"step": 2})
    assert path.read_bytes() == b'{"step": 1}\n'
    log.append({"step": 2})
    assert read_rows(path) == [{"step": 1}, {"step": 2}]
