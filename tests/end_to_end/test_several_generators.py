"""`--generator-device cpu,cpu`: two generator processes feed one trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.runtime import segment
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import TINY

pytestmark = pytest.mark.slow


def test_two_generators_named_by_their_devices(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "scalerl_mini", "train", "--out", str(run), "--generator-device", "cpu,cpu"]
    command += [word for setting in TINY for word in ("--set", setting)]
    before = set(segment.SHM_DIR.glob("scalerl-*"))
    launcher = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)
    _, text = launcher.communicate(timeout=300)
    assert launcher.returncode == 0, text
    record, steps = json.loads((run / "run.json").read_text()), read_rows(run / "steps.jsonl")
    assert (record["state"], record["devices"]) == ("finished", ["cpu", "cpu", "cpu"])
    assert sorted(path.name for path in (run / "logs").iterdir()) == [
        "generator-0.log",
        "generator-1.log",
        "trainer.log",
    ]
    assert [row["policy_version"] for row in steps] == [1, 2, 3, 4, 5, 6]
    assert max(row["lag_max"] for row in steps) <= 4
    last = read_rows(run / "evals.jsonl")[-1]
    assert last["device_hours"] == pytest.approx(3 * last["wall_seconds"] / 3600), "three processes hold a device"
    assert not [path for path in set(segment.SHM_DIR.glob("scalerl-*")) - before if f"-{launcher.pid}-" in path.name]
