"""150 steps of the memory soak, and that it notices a leak; `python -m tests.soak.memory` does 1000."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patience

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("leak", "code"), [(0, 0), (65536, 1)])
def test_no_process_grows_and_a_leak_would_be_noticed(leak: int, code: int) -> None:
    """In a process of its own, which it changes."""
    command = [sys.executable, "-m", "tests.soak.memory", "--steps", "150", "--warm-up", "50", "--leak", str(leak)]
    command += ["--allowed", "8192", "--every", "10"]  # the trainer is still warming up
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=patience(120))
    assert done.returncode == code, done.stdout + done.stderr[-3000:]
    assert ("growing: trainer" in done.stderr) == bool(leak)
