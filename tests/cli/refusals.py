"""Calls the command line in this process and demands a refusal: one helpful line, and nothing created or changed."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from scalerl_mini import cli
from scalerl_mini.runtime import segment


def call(*arguments: str) -> int:
    """The exit code of `scalerl-mini ARGUMENTS`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["scalerl-mini", *arguments])
        try:
            cli.main()
        except SystemExit as ending:
            return int(ending.code or 0)
    return 0


def contents(folder: Path) -> dict[str, str]:
    """Digest of every file, and every folder and link, below `folder`."""
    found = {}
    for path in folder.rglob("*"):
        whole = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if whole else "-"
    return found


def refused(capsys: pytest.CaptureFixture[str], place: Path, message: str, *arguments: str, code: int = 2) -> None:
    """Exit `code`, one line on stderr that begins with "error: " and holds `message`, and everything as it was."""
    before = contents(place)
    assert call(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: "), captured.err
    assert captured.err.count("\n") == 1, captured.err
    assert len(captured.err) < 1000
    assert message in captured.err
    assert contents(place) == before
    assert not list(segment.SHM_DIR.glob(f"scalerl-{os.getpid()}-*"))
