"""The script that proves the GPU paths is itself sound: it parses, and its checks pass where DEVICE=cpu."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "gpu" / "check.sh"


def test_the_script_parses() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    assert os.access(SCRIPT, os.X_OK)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weights", "learner", "engine"])
def test_a_check_passes_on_the_cpu(name: str) -> None:
    command = [sys.executable, "-m", "tests.gpu.checks", name]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"DEVICE": "cpu"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_needs_a_gpu_is_skipped_with_the_reason() -> None:
    command = [sys.executable, "-m", "tests.gpu.checks", "device"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"DEVICE": "cpu"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (77, "DEVICE=cpu\n")
