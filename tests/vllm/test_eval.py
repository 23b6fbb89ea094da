"""`scalerl-mini eval --engine vllm`: other samples than the torch engine's, of the same distribution."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def evaluated(engine: str) -> dict[str, Any]:
    """The built-in model on 200 of its sums, in a process of its own."""
    asked = ["builtin:tiny-adder", "--engine", engine, "--prompts", "200", "--samples", "8", "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-c", "from scalerl_mini.cli import main; main()", "eval", *asked],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = json.loads(done.stdout)["tasks"]
    return found


def test_both_engines_find_the_same_within_noise() -> None:
    ours, theirs = evaluated("vllm"), evaluated("torch")
    error = (ours["mean_stderr_same_prompts"] ** 2 + theirs["mean_stderr_same_prompts"] ** 2) ** 0.5
    assert abs(ours["mean"] - theirs["mean"]) < 4 * error
    assert 0.05 < ours["mean"] < 0.2
    assert ours["mean_length"] == pytest.approx(theirs["mean_length"], rel=0.03)
    assert ours["interruption_rate"] == pytest.approx(theirs["interruption_rate"], abs=0.03)
    print(ours["mean"], theirs["mean"], error)  # pytest -s
