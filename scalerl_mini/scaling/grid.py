"""Where to look: the coarse grid over all shapes (log B, log C_mid), then a grid laid along the ridge of plausible ones.

The plausible shapes form a thin slanted ridge, often a hundred times narrower across than along, so a rectangular grid
would spend its points beside it (and an interval read from it would be too narrow). Here every row (one B) is centred on
its own best C_mid, found exactly, and its columns step away from it in units of the row's own standard error: finely
near the centre, ever wider outwards, until they reach the limits of the search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalerl_mini.scaling.normal import Array, clip, normal_equations, solve
from scalerl_mini.scaling.polish import LOG_B_LIMITS, Optimum, Problem, polish

BELOW, ABOVE = 1.5, 3.2  # C_mid is searched from exp(-1.5) x the first to exp(3.2) x the last compute
_SIDE = np.array([0.4, 0.8, 1.2, 1.7, 2.3, 3.0, 4.0, 5.4, 7.5, 12.0, 20.0, 32.0])
OFFSETS = np.concatenate([-_SIDE[::-1], [0.0], _SIDE])


def mid_limits(x: Array) -> tuple[float, float]:
    """Search range of log C_mid for log compute x[n]."""
    return float(x[0] - BELOW), float(x[-1] + ABOVE)


@dataclass(frozen=True)
class Ridge:
    """J rows of log B, each with K values of log C_mid around the row's best: `mids` [J, K], `log_b` [J].

    Before they were clipped to the limits the values were `centre` [J] plus `sd` [J] times OFFSETS.
    """

    log_b: Array
    mids: Array
    centre: Array
    sd: Array

    def points(self) -> tuple[Array, Array]:
        """(log B, log C_mid) of all points, each [J * K]."""
        return np.repeat(self.log_b, self.mids.shape[1]), self.mids.ravel()

    def places(self, mid: Array) -> Array:
        """For each row the column k with mids[:, k] <= mid <= mids[:, k + 1], beyond an end the nearest pair: [J, V]."""
        steps = (mid - self.centre[:, None]) / self.sd[:, None]
        return clip(np.searchsorted(OFFSETS, steps, side="right") - 1, 0, len(OFFSETS) - 2)


def coarse_rows(problem: Problem, rows: int = 16, columns: int = 24) -> Optimum:
    """Best fit for each of `rows` values of B over the whole allowed range: a coarse grid, then C_mid polished."""
    log_b = np.linspace(*LOG_B_LIMITS, rows)
    mid = np.linspace(*problem.mid_limits, columns)
    u = np.exp(log_b)[:, None, None] * (problem.x - mid[None, :, None])
    rise = problem.law.rise(u.reshape(rows * columns, -1))
    eq = normal_equations(rise, problem.y[0], np.zeros(1), problem.kappa, problem.r0)
    best = np.argmin(solve(eq, problem.box)[2].reshape(rows, columns), axis=1)
    return polish(problem.repeat(rows), log_b, mid[best], steps=2, hold_b=True)


def narrower_rows(problem: Problem, rows: Optimum, plausible: Array, count: int = 26) -> Optimum:
    """Best fits for `count` values of B over the `plausible` rows (booleans) and one more row on each side."""
    used = np.flatnonzero(plausible)
    first, last = max(used[0] - 1, 0), min(used[-1] + 1, len(rows.log_b) - 1)
    log_b = np.linspace(rows.log_b[first], rows.log_b[last], count)
    return polish(problem.repeat(count), log_b, np.interp(log_b, rows.log_b, rows.mid), steps=2, hold_b=True)


def ridge(problem: Problem, rows: Optimum, noise: float) -> Ridge:
    """The grid along the ridge whose centres are `rows`; `noise`, the variance of one evaluation, scales the columns."""
    widest = (problem.mid_limits[1] - problem.mid_limits[0]) / 15.0
    sd = clip(np.sqrt(noise / np.maximum(rows.h[-1], 1e-300)), 1e-9, widest)
    mids = rows.mid[:, None] + sd[:, None] * OFFSETS
    return Ridge(rows.log_b, clip(mids, *problem.mid_limits), rows.mid, sd)
