"""Several runs of one recipe as one quantity, with the spread from run to run in it.

A single curve says nothing about that spread; the paper saw about .015 in A over three repeats. Each run's confidence
distribution is sampled, the runs are averaged by their precision, and the spread of the recipe's mean is added. The
between-run variance is estimated from the runs and shrunk towards .015 with the weight of two more runs, because two or
three runs alone cannot tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalerl_mini.scaling.confidence import Distribution
from scalerl_mini.scaling.normal import Array

BETWEEN_SD, PRIOR_RUNS = 0.015, 2
DRAWS = 4000


@dataclass(frozen=True)
class Pooled:
    """Draws of a recipe's quantity [DRAWS], and the between-run sd that went into them (0 for a single run)."""

    draws: Array
    between_sd: float
    runs: int

    @property
    def value(self) -> float:
        """The median."""
        return float(np.median(self.draws))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Central interval."""
        low, high = np.quantile(self.draws, [0.5 * (1 - level), 0.5 * (1 + level)])
        return float(low), float(high)

    def above(self, other: Pooled) -> float:
        """P(this quantity > the other), equal draws (two ceilings at the cap) counting half."""
        mine, theirs = self.draws[:, None][:1000], other.draws[None, :1000]
        return float(np.mean(mine > theirs) + 0.5 * np.mean(mine == theirs))


def pool(parts: Sequence[Distribution], seed: int = 0, between_sd: float | None = None) -> Pooled:
    """Pool the runs of one recipe. `between_sd` fixes the spread from run to run; None estimates it (0 for one run)."""
    rng = np.random.default_rng(seed)
    draws = np.stack([_sample(part, rng) for part in parts])
    middle, spread = np.median(draws, axis=1), np.maximum(_robust_sd(draws), 1e-6)
    if between_sd is None:
        between_sd = _between(middle, spread) if len(parts) > 1 else 0.0
    weight = 1.0 / (spread**2 + between_sd**2)
    weight /= weight.sum()
    mean = weight @ draws + between_sd * np.sqrt(np.sum(weight**2)) * rng.normal(size=DRAWS)
    return Pooled(rng.permutation(mean), float(between_sd), len(parts))


def _sample(part: Distribution, rng: np.random.Generator) -> Array:
    """Draws by inverse distribution; mass beyond the last value sits at the limit of the range."""
    p = (rng.permutation(DRAWS) + 0.5) / DRAWS
    inside = np.interp(p, part.cdf, part.values)
    return np.where(p > part.cdf[-1], part.high if np.isfinite(part.high) else part.values[-1], inside)


def _robust_sd(draws: Array) -> Array:
    low, high = np.quantile(draws, [0.159, 0.841], axis=1)
    return 0.5 * (high - low)


def _between(middle: Array, spread: Array) -> float:
    """Between-run sd: the runs' scatter beyond their own uncertainty, shrunk towards BETWEEN_SD."""
    k = len(middle)
    beyond = max(float(np.var(middle, ddof=1) - np.mean(spread**2)), 0.0)
    return float(np.sqrt((PRIOR_RUNS * BETWEEN_SD**2 + (k - 1) * beyond) / (PRIOR_RUNS + k - 1)))
