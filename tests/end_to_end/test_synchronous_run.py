"""Synchronous mode (k = 0): a run is a function of its configuration, whether it was interrupted or not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from scalerl_mini.training.checkpoint_names import list_checkpoints
from tests.end_to_end.command import TINY, Launched, steps_done, timeless

pytestmark = pytest.mark.slow

SYNCHRONOUS = (*TINY, "pipeline.k=0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("synchronous") / "whole"
    code, text = Launched("--out", str(folder), "--seed", "3", settings=SYNCHRONOUS).end()
    assert code == 0, text
    return folder


def test_neither_a_second_start_nor_ctrl_c_makes_a_difference(whole: Path, tmp_path: Path) -> None:
    """Repeated from its own config.toml, and interrupted: the signal goes to all processes, as a terminal sends it."""
    folder = tmp_path / "run"
    run = Launched("--config", str(whole / "config.toml"), "--out", str(folder))
    run.wait_for(lambda: steps_done(folder) >= 2, "two steps")
    os.killpg(run.process.pid, signal.SIGINT)
    code, text = run.end()
    assert code == 130, text
    assert f"stopped; continue with: scalerl-mini train --resume {folder}" in text
    assert "Traceback" not in text
    assert run.left_behind() == []
    done = steps_done(folder)
    assert 2 <= done < 6
    assert [path.name for path in list_checkpoints(folder / "checkpoints")] == [f"step-{done:05d}"]
    assert json.loads((folder / "run.json").read_text())["state"] == "stopped"

    resumed = Launched("--resume", str(folder))
    code, text = resumed.end()
    assert code == 0, text
    for name in ("steps.jsonl", "evals.jsonl"):
        assert timeless(folder / name) == timeless(whole / name)
    weights = [list_checkpoints(run / "checkpoints")[0] / "model.safetensors" for run in (folder, whole)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
