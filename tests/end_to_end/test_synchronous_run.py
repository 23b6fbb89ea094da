"""Synchronous mode (k = 0): a run is a function of its configuration, whether it was interrupted or not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from scalerl_mini.training.checkpoint import read_state
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import TINY, Launched, steps_done, timeless

pytestmark = pytest.mark.slow

STEPS, HALF = 20, 10
SYNCHRONOUS = (*TINY, "pipeline.k=0", f"training.steps={STEPS}", f"runtime.checkpoint_every={HALF}")


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
    assert 2 <= done < STEPS
    assert [path.name for path in list_checkpoints(folder / "checkpoints")] == [f"step-{done:05d}"]
    assert json.loads((folder / "run.json").read_text())["state"] == "stopped"

    code, text = Launched("--resume", str(folder)).end()
    assert code == 0, text
    assert_equal(folder, whole)


def test_a_run_killed_after_half_of_its_steps_ends_bit_identical(whole: Path, tmp_path: Path) -> None:
    """SIGKILL to the launcher, which takes the others along; the steps after the checkpoint are done again."""
    folder = tmp_path / "run"
    run = Launched("--config", str(whole / "config.toml"), "--out", str(folder))
    run.wait_for(lambda: steps_done(folder) >= HALF + 2, "more than half of the steps")
    run.process.kill()
    run.end()
    assert [process for process in run.left_behind() if isinstance(process, psutil.Process)] == []
    assert HALF + 2 <= steps_done(folder) < STEPS
    assert [path.name for path in list_checkpoints(folder / "checkpoints")] == [f"step-{HALF:05d}"]

    code, text = Launched("--resume", str(folder)).end()
    assert code == 0, text
    assert run.segments == []
    assert_equal(folder, whole)
    assert [row["step"] for row in read_rows(folder / "steps.rewound.jsonl")][:2] == [HALF + 1, HALF + 2]


def assert_equal(folder: Path, whole: Path) -> None:
    """Logs, weights, optimiser and the trainer's state are the same, apart from times."""
    for name in ("steps.jsonl", "evals.jsonl"):
        assert timeless(folder / name) == timeless(whole / name)
    newest = [list_checkpoints(run / "checkpoints")[0] for run in (folder, whole)]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (newest[0] / name).read_bytes() == (newest[1] / name).read_bytes()
    states = [read_state(checkpoint) for checkpoint in newest]
    for state in states:
        del state["compute"]["seconds"]
    assert states[0] == states[1]
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
