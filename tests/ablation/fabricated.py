"""Studies without training: ended run folders with curves of the law, and a command that stands in for `train`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from scalerl_mini.ablation.study import Study
from scalerl_mini.ablation.variants import Variant
from tests.scaling.synthetic import sigmoid


def study(folder: Path, *names: str, seeds: int = 2) -> Study:
    """A study whose variants differ in one key each."""
    variants = tuple(Variant(name, settings=(f"training.lr={number + 1}e-4",)) for number, name in enumerate(names))
    return Study(folder, "scalerl", (), variants, tuple(range(seeds)))


def ended_run(
    folder: Path, seed: int, points: int = 20, last: float = 1e6, state: str = "finished", **law: Any
) -> None:
    """A run folder on the CPU with `points` evaluations up to `last` generated tokens; noise of sd .004."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"state": state, "reason": None, "device": "cpu"}))
    tokens = np.linspace(0.0, last, points + 1)
    clean = sigmoid(np.maximum(tokens, 1e-9), **({"r0": 0.1, "a": 0.8, "b": 1.5, "c_mid": 1e5} | law))
    rates = np.clip(clean + 0.004 * np.random.default_rng(seed).normal(size=points + 1), 0, 1)
    rows = [
        {"step": i, "generated_tokens": t, "flops": 2e6 * t, "pass_rate": r, "pass_rate_stderr": 0.004}
        for i, (t, r) in enumerate(zip(tokens.tolist(), rates.tolist(), strict=True))
    ]
    (folder / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# `train` for the tests of running: writes into a diary what it was asked, holds the folder as a run does, and ends.
STAND_IN = """
import json, signal, sys, time
from pathlib import Path
from scalerl_mini.training.run_folder import RunFolder

words = sys.argv[1:]
resume = "--resume" in words
folder = Path(words[words.index("--resume" if resume else "--out") + 1])
study = folder.parents[1]


def say(what):
    with (study / "diary").open("a") as file:
        file.write(f"{folder.parent.name} {folder.name} {what}\\n")


def write(**record):
    (folder / "run.json").write_text(json.dumps(record))


def stop(*_):
    (folder / "checkpoints" / "step-00002").mkdir(parents=True, exist_ok=True)
    write(state="stopped", reason="interrupted")
    sys.exit(143)


signal.signal(signal.SIGTERM, stop)
with RunFolder(folder).lock():
    say("resumed" if resume else "started")
    if (study / f"fail-{folder.parent.name}").exists():
        sys.exit("no such model")
    write(state="running", reason=None)
    end = time.monotonic() + 100  # a test that forgets to let go fails, it does not hang
    while (study / f"hold-{folder.parent.name}").exists():
        if time.monotonic() > end:
            sys.exit("held too long")
        time.sleep(0.02)
    say("ended")
    write(state="finished", reason=None)
"""
COMMAND = (sys.executable, "-c", STAND_IN)


def diary(folder: Path) -> list[str]:
    """Lines of all stand-in runs of a study, in the order of time."""
    path = folder / "diary"
    return path.read_text().splitlines() if path.exists() else []
