"""From the command to the first trained step, warm cache, and the ten slowest imports of the trainer.

python -m tests.bench.bench_startup [--short] [--json FILE]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.harness import Ratio, main

SETTINGS = ("training.steps=1", "evaluation.prompts=1", "evaluation.samples=1")


def first_step() -> float:
    """Seconds until the first row of steps.jsonl."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "scalerl_mini", "train", "--out", f"{folder}/run"]
        command += [part for setting in SETTINGS for part in ("--set", setting)]
        rows, start = Path(folder) / "run" / "steps.jsonl", time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (rows.exists() and rows.stat().st_size) and process.poll() is None:
            time.sleep(0.01)
        spent = time.perf_counter() - start
        if process.wait(120) or not rows.stat().st_size:
            raise RuntimeError("the run did not reach its first step")
        return spent


def slowest_imports(count: int = 10) -> list[tuple[float, str]]:
    """(seconds of its own, module) of what a trainer imports."""
    command = [sys.executable, "-X", "importtime", "-c", "import scalerl_mini.training.trainer"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    rows = [
        line.removeprefix("import time:").split("|") for line in text.splitlines() if line.startswith("import time:")
    ]
    return sorted(((int(own) / 1e6, name.strip()) for own, _, name in rows[1:]), reverse=True)[:count]


def measure(short: bool) -> list[Ratio]:
    for spent, name in slowest_imports():
        print(f"import {name}: {spent:.2f} s of its own", file=sys.stderr)
    times = sorted(first_step() for _ in range(1 if short else 3))
    detail = "runs: " + ", ".join(f"{spent:.1f}" for spent in times) + " s"
    return [Ratio("start to first trained step, s", times[len(times) // 2], 10, False, detail)]


if __name__ == "__main__":
    main(measure, __doc__)
