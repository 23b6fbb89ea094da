"""What the tables of bad input share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, no way to the hub, and no process is started."""

    def refuse(*_: object) -> None:
        raise AssertionError("the run was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("scalerl_mini.training.launcher._supervise", refuse)
    return tmp_path
