"""Kill and freeze every process of a run at every stage, and see that nobody can tell from what the run leaves behind.

    python -m tests.soak.kill_matrix --kills 200 --seed 1

A run is struck a few times at moments that are random within the planned stage; a launcher that was killed or interrupted
is followed by another with --resume. Afterwards the run must have finished, and its steps, evaluations and final weights
must be those of a run that nobody disturbed, down to the last bit: which is so because the fake engine's tokens depend on
seeds alone. Only times, lags and buffer levels may differ.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from scalerl_mini.training.row_log import read_rows
from tests.fakes import uniform_model
from tests.soak import actors
from tests.soak.soaked_run import BACKOFF, FULL, STEPS, K, Kill, Run

STAGES = {
    "generator": ("STARTING", "GENERATING", FULL, "LOADING", "EVALUATING"),
    "trainer": ("STARTING", "WAITING", "TRAINING", "PUBLISHING", "CHECKPOINTING", "EVALUATING"),
    "launcher": ("STARTING", "GENERATING", FULL, "PUBLISHING", "CHECKPOINTING", "EVALUATING", BACKOFF),
}
SIGNALS = {"generator": ("SIGKILL", "SIGSTOP"), "trainer": ("SIGKILL", "SIGSTOP"),
           "launcher": ("SIGKILL", "SIGSTOP", "SIGINT", "SIGTERM", "2x SIGINT")}  # fmt: skip


def matrix() -> list[Kill]:
    """Every cell once."""
    return [Kill(role, stage, name) for role, stages in STAGES.items() for stage in stages for name in SIGNALS[role]]


TO_BACKOFF = Kill("trainer", "TRAINING", "SIGKILL")


def prepared(kill: Kill) -> list[Kill]:
    """A kill and what must go before it: there is a pause to strike only after the trainer's death."""
    return [TO_BACKOFF, kill] if kill.stage == BACKOFF else [kill]


@dataclass
class Soak:
    """Runs with kills until every planned kill was sent."""

    place: Path
    seed: int
    runs: list[Run] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.model = uniform_model(self.place / "model")
        self.reference = self._run("reference", 1, [])[0]

    def go(self, kills: list[Kill]) -> None:
        """Each run takes up to four kills; one at the start can only be the first of a run."""
        starts = [kill for kill in kills if kill.stage == "STARTING"]
        others = [kill for kill in kills if kill.stage != "STARTING"]
        self.random.shuffle(others)
        while starts or others:
            count = self.random.randint(1, 4)
            plan = [starts.pop()] if starts and (self.random.random() < 0.5 or not others) else []
            plan, others = plan + [step for kill in others[:count] for step in prepared(kill)], others[count:]
            run, left = self._run(f"run-{len(self.runs)}", self.random.randint(1, 2), plan)
            pairs = zip_longest(left, left[1:])  # what only prepares another kill comes with it again
            others += [kill for kill, then in pairs if then is None or [kill, then] != prepared(then)]
            run.check(self.reference)
            self.runs.append(run)
            done = sum(len(run.sent) for run in self.runs)
            text = ", ".join(f"{kill.role} {kill.stage} {kill.signal}" for kill in run.sent)
            print(f"run {len(self.runs):3d}: as undisturbed after {self.seconds[-1]:5.1f} s, {len(run.launchers)} launchers,"
                  f" {run.deaths} deaths mended; {done} kills so far: {text}", flush=True)  # fmt: skip

    def _run(self, name: str, generators: int, plan: list[Kill]) -> tuple[Run, list[Kill]]:
        start = time.monotonic()
        run = Run(self.place / name, self.model, generators, self.random)
        left = run.go(plan)
        self.seconds.append(time.monotonic() - start)
        return run, left

    def table(self) -> str:
        """Kills by role, stage and signal, every one of which ended in a run as if undisturbed."""
        counts = Counter(kill for run in self.runs for kill in run.sent)
        lines = [f"{'role':<12}{'stage':<16}" + "".join(f"{name:>11}" for name in SIGNALS["launcher"])]
        for role, stages in STAGES.items():
            for stage in stages:
                numbers = [counts[Kill(role, stage, name)] for name in SIGNALS[role]]
                lines.append(f"{role:<12}{stage:<16}" + "".join(f"{number:>11}" for number in numbers))
        rewound = sum(len(read_rows(run.folder / "steps.rewound.jsonl")) for run in self.runs)
        lags = [row["lag_max"] for run in self.runs for row in read_rows(run.folder / "steps.jsonl")]
        lines.append(f"{sum(counts.values())} kills in {len(self.runs)} runs of {STEPS} steps, seed {self.seed}: "
                     f"{sum(run.deaths for run in self.runs)} deaths mended, {rewound} steps done again, "
                     f"largest lag {max(lags)} of {K}, mean {np.mean(lags):.2f}, {sum(self.seconds):.0f} s")  # fmt: skip
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=len(matrix()), help="rounded up to whole matrices when above one")
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed when it is not given")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    actors.prepare()
    with tempfile.TemporaryDirectory(prefix="scalerl-soak-") as place:
        soak = Soak(Path(place), seed)
        cells = matrix()
        soak.random.shuffle(cells)
        soak.go((cells * -(-options.kills // len(cells))) if options.kills > len(cells) else cells[: options.kills])
        print(soak.table())


if __name__ == "__main__":
    main()
