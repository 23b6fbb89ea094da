"""Any process of a run may die at any time: the run goes on, or ends soon, says who died of what, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import TINY, Launched, steps_done
from tests.end_to_end.conftest import Launch
from tests.patience import patience
from tests.training.checkpoints import made_up_checkpoint

pytestmark = pytest.mark.slow

LONG = (*TINY, "training.steps=500")


def running(launch: Launch, folder: Path, *settings: str, steps: int = 1) -> Launched:
    """A run that has done its first steps."""
    run = launch("--out", str(folder), settings=(*LONG, *settings))
    run.wait_for(lambda: steps_done(folder) >= steps, f"{steps} steps")
    return run


def test_a_run_outlives_its_generator_and_its_trainer(launch: Launch, tmp_path: Path) -> None:
    """The generator is replaced while the trainer goes on; after the trainer's death all begin again at step 4 or 8."""
    folder = tmp_path / "run"
    settings = ("training.steps=16", "runtime.checkpoint_every=4", "evaluation.early_every=8")
    run = running(launch, folder, *settings, steps=2)
    trainer = run.role("trainer")
    run.role("generator-0").send_signal(signal.SIGKILL)
    run.wait_for(lambda: "started again" in run.text, "another generator")
    run.wait_for(lambda: steps_done(folder) >= 9, "nine steps, with more groups than the dead one had handed over")
    assert run.role("trainer") == trainer
    trainer.send_signal(signal.SIGKILL)
    code, text = run.end()
    assert code == 0, text
    told = " ".join(text.split())
    assert "generator-0 was killed by SIGKILL; started again, " in told
    assert "trainer was killed by SIGKILL; going on from step-000" in told
    record = json.loads((folder / "run.json").read_text())
    assert record["state"] == "finished"
    assert [(row["role"], row["cause"]) for row in record["deaths"]] == [
        ("generator-0", "was killed by SIGKILL"),
        ("trainer", "was killed by SIGKILL"),
    ]
    steps = read_rows(folder / "steps.jsonl")
    assert [row["step"] for row in steps] == list(range(1, 17))
    assert max(row["lag_max"] for row in steps) <= 4
    assert [row["step"] for row in read_rows(folder / "evals.jsonl")] == [0, 8, 16]
    assert run.left_behind() == []


@pytest.mark.parametrize("role", ["trainer", "generator-0"])
def test_without_restarts_a_killed_process_ends_the_run_and_is_named(launch: Launch, tmp_path: Path, role: str) -> None:
    run = running(launch, tmp_path / "run", "runtime.restarts=0")
    run.role(role).send_signal(signal.SIGKILL)
    code, text = run.end()
    assert code == 1
    assert f"failed: {role} was killed by SIGKILL" in " ".join(text.split())
    assert "Traceback" not in text
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["state"] == "failed"
    assert f"{role} was killed by SIGKILL" in record["reason"]
    assert run.left_behind() == []


def test_a_killed_launcher_takes_all_with_it_and_the_next_start_clears_up(launch: Launch, tmp_path: Path) -> None:
    run = running(launch, tmp_path / "run")
    run.wait_for(lambda: len(run.family) >= 2, "two children")
    assert run.segments
    run.process.kill()
    run.end()
    assert psutil.wait_procs(run.family, timeout=patience(10))[1] == []
    assert run.segments
    code, text = launch("--out", str(tmp_path / "other"), settings=("model.name=/absent",)).end()
    assert code == 2, text
    assert run.segments == []


def test_a_second_run_is_refused_and_sigterm_ends_in_order(launch: Launch, tmp_path: Path) -> None:
    """Neither --overwrite nor --resume touches a run that is going on; that one is not disturbed."""
    folder = tmp_path / "run"
    run = running(launch, folder)
    made_up_checkpoint(folder, 0)  # so that --resume gets as far as the lock
    for arguments in (("--out", str(folder), "--overwrite"), ("--resume", str(folder))):
        code, text = launch(*arguments).end()
        assert code == 2
        assert f"a run is going on in {folder}" in " ".join(text.split())
    done = steps_done(folder)
    run.wait_for(lambda: steps_done(folder) > done, "one step more")
    os.killpg(run.process.pid, signal.SIGTERM)  # to all of its processes, as `timeout` and batch systems send it
    code, text = run.end()
    assert code == 143, text
    assert "Traceback" not in text
    assert list_checkpoints(folder / "checkpoints")[0].name == f"step-{steps_done(folder):05d}"
    assert run.left_behind() == []


def test_a_second_ctrl_c_does_not_wait_for_a_trainer_that_hangs(launch: Launch, tmp_path: Path) -> None:
    """The first waits up to a minute for it; heartbeats are none of this test's business."""
    run = running(launch, tmp_path / "run", "runtime.heartbeat_timeout_s=6000")
    run.role("trainer").send_signal(signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    time.sleep(1.0)
    assert run.process.poll() is None
    asked = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    code, text = run.end()
    assert time.monotonic() - asked < 30.0  # half of what the first would have waited
    assert code == 130, text
    assert "stopped; there is no checkpoint yet" in text
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "stopped"
    assert run.left_behind() == []
