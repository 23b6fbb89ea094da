"""What every benchmark hands back: ratios measured side by side in one run, for absolute times drift on a shared machine."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ratio:
    """One measured ratio. goal: what it should reach; higher_is_better says on which side. detail: the absolute figures."""

    name: str
    value: float
    goal: float
    higher_is_better: bool
    detail: str

    @property
    def met(self) -> bool:
        return self.value >= self.goal if self.higher_is_better else self.value <= self.goal

    def worse_than(self, before: float, tolerance: float = 0.25) -> bool:
        """Whether it is worse than an earlier value by more than the tolerance (a share of it)."""
        if self.higher_is_better:
            return self.value < before / (1 + tolerance)
        return self.value > before * (1 + tolerance)

    def line(self) -> str:
        sign = ">=" if self.higher_is_better else "<="
        return (
            f"| {self.name} | {sign} {self.goal:g} | {self.value:.3g} | {'yes' if self.met else 'NO'} | {self.detail} |"
        )


def seconds(*jobs: Callable[[], object], repeats: int = 3) -> list[float]:
    """Median wall seconds of each job; the jobs take turns so that a drift of the machine hits all alike."""
    spent: list[list[float]] = [[] for _ in jobs]
    for _ in range(repeats):
        for job, times in zip(jobs, spent, strict=True):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in spent]


def main(measure: Callable[[bool], list[Ratio]], description: str | None) -> None:
    """The command line of a benchmark: [--short] [--json FILE]."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="smaller sizes, fewer repeats")
    parser.add_argument("--json", type=Path, help="also write the ratios there")
    options = parser.parse_args()
    ratios = measure(options.short)
    for ratio in ratios:
        print(ratio.line(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(ratio) for ratio in ratios], indent=2) + "\n", encoding="utf-8")
