"""A short soak with moments of its own each time; `python -m tests.soak.kill_matrix` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patience

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_twelve_kills_leave_no_trace() -> None:
    """In a process of its own, which it changes. A failure prints the seed that repeats its plan (not its timing)."""
    command = [sys.executable, "-m", "tests.soak.kill_matrix", "--kills", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=patience(300))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert " steps done again, largest lag " in done.stdout
