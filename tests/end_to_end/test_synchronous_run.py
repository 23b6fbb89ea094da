"""Synchronous mode (k = 0): a run is a function of its configuration, whether it was interrupted, killed or neither."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import TINY, Launched, steps_done, timeless
from tests.end_to_end.conftest import Launch
from tests.forked import Ancestor
from tests.patience import patience

pytestmark = pytest.mark.slow

STEPS = 20
SYNCHRONOUS = (*TINY, "pipeline.k=0", f"training.steps={STEPS}", "runtime.checkpoint_every=10")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, ancestor: Ancestor) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("synchronous") / "whole"
    console = folder.with_suffix(".console")
    code, text = Launched(
        "--out", str(folder), "--seed", "3", settings=SYNCHRONOUS, console=console, ancestor=ancestor
    ).end()
    assert code == 0, text
    return folder


def same(folder: Path, whole: Path) -> None:
    """Logs without what a clock says, weights and optimiser are equal, the last two byte by byte."""
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
    for name in ("steps.jsonl", "evals.jsonl"):
        assert timeless(folder / name) == timeless(whole / name)
    newest = [list_checkpoints(run / "checkpoints")[0] for run in (folder, whole)]
    assert newest[0].name == f"step-{STEPS:05d}"
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (newest[0] / name).read_bytes() == (newest[1] / name).read_bytes()


def test_neither_a_second_start_nor_ctrl_c_makes_a_difference(whole: Path, tmp_path: Path, launch: Launch) -> None:
    """Repeated from its own config.toml, and interrupted: the signal goes to all processes, as a terminal sends it."""
    folder = tmp_path / "run"
    run = launch("--config", str(whole / "config.toml"), "--out", str(folder))
    run.wait_for(lambda: steps_done(folder) >= 2, "two steps")
    os.killpg(run.process.pid, signal.SIGINT)
    code, text = run.end()
    assert code == 130, text
    assert f"stopped; continue with: scalerl-mini train --resume {folder}" in text
    assert "Traceback" not in text
    assert run.left_behind() == []
    done = steps_done(folder)
    assert 2 <= done < STEPS
    assert list_checkpoints(folder / "checkpoints")[0].name == f"step-{done:05d}"
    assert json.loads((folder / "run.json").read_text())["state"] == "stopped"
    code, text = launch("--resume", str(folder)).end()
    assert code == 0, text
    same(folder, whole)


def test_sigkill_after_the_tenth_step_makes_no_difference(whole: Path, tmp_path: Path, launch: Launch) -> None:
    """All of a run at once, as the kernel or a power cut would: 20 steps are 10, SIGKILL and 10 again."""
    folder = tmp_path / "run"
    run = launch("--config", str(whole / "config.toml"), "--out", str(folder))
    run.wait_for(lambda: steps_done(folder) >= 12, "twelve steps")
    os.killpg(run.process.pid, signal.SIGKILL)
    assert run.end()[0] == -signal.SIGKILL
    assert psutil.wait_procs(run.family, timeout=patience(10))[1] == []
    done = steps_done(folder)
    assert 12 <= done < STEPS
    code, text = launch("--resume", str(folder)).end()
    assert code == 0, text
    rewound = read_rows(folder / "steps.rewound.jsonl")
    assert [row["step"] for row in rewound] == list(range(11, done + 1))
    same(folder, whole)
