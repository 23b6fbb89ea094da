"""Does a downstream task follow the held-out curve? The correlation of the two pass rates over a run's evaluations.

Two curves that rise with training correlate whatever they measure. So the correlation of their *changes* from one
evaluation to the next stands beside that of their values: only it says that they move together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalerl_mini.scaling.rows import Row

HELD_OUT, DOWNSTREAM = "pass_rate", "downstream_pass_rate"
FEWEST = 3  # evaluations; with two, every correlation is 1


@dataclass(frozen=True)
class Agreement:
    """n evaluations of both tasks; correlations in [-1, 1], None where one of the two does not vary.

    changes: Pearson's of the differences between neighbouring evaluations. first, last: downstream pass rates.
    """

    n: int
    pearson: float | None
    spearman: float | None
    changes: float | None
    first: float
    last: float

    def __str__(self) -> str:
        cells = ("Pearson", self.pearson), ("Spearman", self.spearman), ("changes", self.changes)
        shown = ", ".join(f"{name} {'-' if value is None else format(value, '.2f')}" for name, value in cells)
        return f"{self.first:.3f} to {self.last:.3f}; with the held-out pass rate: {shown} (n = {self.n})"


def agreement(rows: Sequence[Row]) -> Agreement | None:
    """From the rows of evals.jsonl; None when fewer than three evaluated both tasks."""
    pairs = [(row.get(HELD_OUT), row.get(DOWNSTREAM)) for row in rows]
    both = np.array([pair for pair in pairs if all(map(_is_number, pair))], float).reshape(-1, 2)
    if len(both) < FEWEST:
        return None
    held_out, downstream = both.T
    return Agreement(
        len(both),
        _correlation("pearsonr", held_out, downstream),
        _correlation("spearmanr", held_out, downstream),
        _correlation("pearsonr", np.diff(held_out), np.diff(downstream)),
        float(downstream[0]),
        float(downstream[-1]),
    )


def _correlation(name: str, first: np.ndarray, second: np.ndarray) -> float | None:
    from scipy import stats  # slow to import, and seldom needed

    if len(first) < FEWEST or not np.ptp(first) or not np.ptp(second):
        return None
    return float(getattr(stats, name)(first, second).statistic)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
