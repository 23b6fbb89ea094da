"""Asynchronous against synchronous training of the same job on the same two cores, as ratios of wall time a step.

    python tests/bench/bench_pipeline.py --steps 60 --repeats 3

Three ways, interleaved so that a drift of the machine hits all alike: pipeline (k = 4, one thread a process), synchronous
(k = 0, one thread), synchronous with two threads in each phase. Evaluation is left out; the first ten steps too. Also
says how much of the run each side waited.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WAYS = {
    "pipeline": ("pipeline.k=4", "runtime.threads=1"),
    "synchronous": ("pipeline.k=0", "runtime.threads=1"),
    "synchronous, 2 threads": ("pipeline.k=0", "runtime.threads=2"),
}
WARM_UP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for seed in range(options.repeats):
        for way in WAYS:
            results[way].append(measure(WAYS[way], seed, options.steps))
            print(f"{way}, seed {seed}: {results[way][-1]}", file=sys.stderr)
    seconds = {way: statistics.median(row["seconds_per_step"] for row in rows) for way, rows in results.items()}
    summary = {
        "steps": options.steps,
        "repeats": options.repeats,
        "seconds_per_step": seconds,
        "speedup_over_synchronous": seconds["synchronous"] / seconds["pipeline"],
        "speedup_over_synchronous_2_threads": seconds["synchronous, 2 threads"] / seconds["pipeline"],
        "runs": results,
    }
    print(json.dumps(summary, indent=2))


def measure(way: tuple[str, ...], seed: int, steps: int) -> dict[str, float]:
    """Train once; seconds a step after the warm-up, and the shares of that time each side waited."""
    settings = (
        *way,
        f"training.steps={steps}",
        f"seed={seed}",
        "evaluation.prompts=1",
        f"evaluation.every={steps}",
    )
    settings += (f"evaluation.early_every={steps}", "runtime.checkpoint_every=100000")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "scalerl_mini", "train", "--out", str(out)]
        command += [part for setting in settings for part in ("--set", setting)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    # The last steps are left out too: no group is issued beyond the end, so the generator idles there.
    measured = rows[WARM_UP:-5]
    seconds = measured[-1]["wall_seconds"] - rows[WARM_UP - 1]["wall_seconds"]
    return {
        "seconds_per_step": seconds / len(measured),
        "trainer_waits": sum(row["trainer_wait_s"] for row in measured) / seconds,
        "generator_waits": sum(row["generator_wait_s"] for row in measured) / seconds,
    }


if __name__ == "__main__":
    main()
