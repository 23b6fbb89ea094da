"""An exception of the launcher itself leaves its traceback in the run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.training.launcher import fault_kept


def test_what_nobody_foresaw_is_kept_with_its_traceback(tmp_path: Path) -> None:
    path = tmp_path / "launcher.log"
    with pytest.raises(ZeroDivisionError), fault_kept(path):
        _ = 1 / 0
    assert "Traceback" in path.read_text()
    assert "ZeroDivisionError: division by zero" in path.read_text()


def test_what_is_told_in_one_line_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(UserError), fault_kept(tmp_path / "launcher.log"):
        raise UserError("choose another --out")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_does_not_hide_the_cause(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fault_kept(tmp_path / "absent" / "launcher.log"):
        _ = 1 / 0
