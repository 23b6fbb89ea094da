"""Any process of a run may die at any time: the run ends soon, says who died of what, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from scalerl_mini.training.checkpoint_names import list_checkpoints
from tests.end_to_end.command import TINY, Launched, steps_done
from tests.training.checkpoints import made_up_checkpoint

pytestmark = pytest.mark.slow

LONG = (*TINY, "training.steps=500")
SOON_S = 30.0  # ten on a machine that does nothing else


def running(folder: Path) -> Launched:
    """A run that has done its first step."""
    run = Launched("--out", str(folder), settings=LONG)
    run.wait_for(lambda: steps_done(folder) >= 1, "the first step")
    return run


@pytest.mark.parametrize("role", ["trainer", "generator-0"])
def test_a_killed_process_ends_the_run_and_is_named(tmp_path: Path, role: str) -> None:
    run = running(tmp_path / "run")
    run.role(role).send_signal(signal.SIGKILL)
    code, text = run.end(SOON_S)
    assert code == 1
    assert f"failed: {role} was killed by SIGKILL" in " ".join(text.split())
    assert "Traceback" not in text
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["state"] == "failed"
    assert f"{role} was killed by SIGKILL" in record["reason"]
    assert run.left_behind() == []


def test_a_killed_launcher_takes_all_with_it_and_the_next_start_clears_up(tmp_path: Path) -> None:
    run = running(tmp_path / "run")
    run.wait_for(lambda: len(run.family) >= 2, "two children")
    assert run.segments
    run.process.kill()
    run.process.communicate()
    gone, alive = psutil.wait_procs(run.family, timeout=SOON_S)
    assert alive == []
    code, text = Launched("--out", str(tmp_path / "other"), settings=("model.name=/absent",)).end()
    assert code == 2, text
    assert run.segments == []


def test_a_second_run_is_refused_and_sigterm_ends_in_order(tmp_path: Path) -> None:
    """Neither --overwrite nor --resume touches a run that is going on; that one is not disturbed."""
    folder = tmp_path / "run"
    run = running(folder)
    made_up_checkpoint(folder, 0)  # so that --resume gets as far as the lock
    for arguments in (("--out", str(folder), "--overwrite"), ("--resume", str(folder))):
        code, text = Launched(*arguments).end()
        assert code == 2
        assert f"a run is going on in {folder}" in text
    done = steps_done(folder)
    run.wait_for(lambda: steps_done(folder) > done, "one step more")
    run.process.send_signal(signal.SIGTERM)
    code, text = run.end(SOON_S)
    assert code == 143, text
    assert "Traceback" not in text
    assert list_checkpoints(folder / "checkpoints")[0].name == f"step-{steps_done(folder):05d}"
    assert run.left_behind() == []
