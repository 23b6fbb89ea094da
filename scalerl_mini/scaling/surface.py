"""The profile surface of one curve: sums of squares over all plausible shapes, for every noise correlation phi.

This is what the intervals are read from. phi is not estimated and plugged in (that is 10-15 points short of coverage when
the noise is correlated); it is averaged over, weighted by its restricted likelihood, which has the bias of the four
fitted parameters taken out of it, and a prior that is part of the calibration (docs/fitting.md has the table).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from scalerl_mini.scaling.grid import Ridge, coarse_rows, mid_limits, narrower_rows, ridge
from scalerl_mini.scaling.laws import Law
from scalerl_mini.scaling.normal import Array, Box, Normal, ar_product, normal_equations, solve
from scalerl_mini.scaling.polish import Optimum, Problem, polish

PHI = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 0.92])
LOG_PRIOR = np.log(np.array([0.1, 0.2, 0.2, 0.2, 0.17, 0.1]))
FLOOR = 1e-18  # mean square below which a residual is rounding, not noise
FIXED = 1e8  # weight of a known R_0 in the normal equations


@dataclass(frozen=True)
class Start:
    """What is known of R_0: nothing (`free`), a measurement with a standard deviation (`soft`), or its value (`fixed`)."""

    kind: str = "free"
    value: float = 0.0
    sd: float = 0.0


@dataclass(frozen=True)
class Surface:
    """Plausible shapes and their normal equations. F phi values with weight, G grid points."""

    x: Array  # [n] log compute
    y: Array  # [n] scores, shifted
    kappa: Array  # [F] weight of the R_0 observation
    r0: float  # its value, shifted
    mid_limits: tuple[float, float]
    weight: Array  # [F], sums to 1
    evidence: Array  # [F] log restricted likelihood plus log prior
    ridge: Ridge
    eq: Normal
    sse: Array  # [F, G]
    grid_r0: Array  # [F, G]
    grid_d: Array  # [F, G]
    least: Array  # [F]
    r0_hat: Array  # [F] best fit for each phi
    d_hat: Array
    log_b_hat: Array
    mid_hat: Array
    dof: int
    box: Box
    law: Law
    best: Optimum

    def excess(self, f: int) -> Array:
        """Squared t statistic of every grid point against the best one, for phi number f: [G]."""
        return self.dof * (self.sse[f] / self.least[f] - 1.0)

    def rise_hat(self, x: float) -> Array:
        """Share of the rise at log compute x, in the best fit of each phi: [F]."""
        if np.isinf(x):
            return np.ones_like(self.mid_hat)
        return self.law.rise(np.exp(self.log_b_hat) * (x - self.mid_hat))


def explore(x: Array, y: Array, law: Law, box: Box, start: Start, prior: Array = LOG_PRIOR) -> Surface:
    """Search all shapes for the scores y[n] (shifted by box.shift) at log compute x[n], ascending, n >= 6."""
    dof = len(y) - 4 + (start.kind != "free")
    problem = Problem(x, y[None], law, box, mid_limits(x), 0.0, start.value - box.shift)
    kappa = np.zeros(len(PHI))
    if start.kind == "fixed":
        kappa = np.full(len(PHI), FIXED * len(y))
        problem = _weighted(problem, kappa)
    coarse = coarse_rows(problem)
    sse = _at(coarse.log_b, coarse.mid, problem, kappa)[1]
    if start.kind == "soft":
        kappa = np.maximum(sse.min(1), FLOOR * len(y)) / max(dof - 1, 1) / start.sd**2
        problem = _weighted(problem, kappa)
        coarse = polish(problem.take(np.zeros(len(coarse.mid), int)), coarse.log_b, coarse.mid, steps=4, hold_b=True)
        sse = _at(coarse.log_b, coarse.mid, problem, kappa)[1]
    top = int(np.argmin(coarse.sse))
    best = polish(problem, coarse.log_b[top : top + 1], coarse.mid[top : top + 1])
    lines, eq, sse, *linear = _fine(problem, coarse, sse, best, kappa, dof)
    tops = _polished(problem, lines, sse, kappa)
    least = np.maximum(np.minimum(sse.min(1), tops.sse), FLOOR * len(y))
    evidence = prior + restricted_likelihood(x, law, best, least, dof, kappa[0])
    weight = np.exp(evidence - evidence.max())
    known = (x, y, kappa, problem.r0, problem.mid_limits)
    return Surface(
        *known,
        weight / weight.sum(),
        evidence,
        lines,
        eq,
        sse,
        *linear,
        least,
        tops.r0,
        tops.d,
        tops.log_b,
        tops.mid,
        dof,
        box,
        law,
        best,
    )


def _weighted(problem: Problem, kappa: Array) -> Problem:
    return replace(problem, kappa=float(kappa[0]))


def _at(log_b: Array, mid: Array, problem: Problem, kappa: Array) -> tuple[Normal, Array, Array, Array]:
    rise = problem.law.rise(np.exp(log_b)[:, None] * (problem.x - mid[:, None]))
    eq = normal_equations(rise, problem.y[0], PHI, kappa, problem.r0)
    r0, d, sse = solve(eq, problem.box)
    return eq, sse, r0, d


def _fine(problem: Problem, rows: Optimum, sse: Array, best: Optimum, kappa: Array, dof: int):
    """The ridge grid over the rows that some phi finds plausible, its normal equations and sums of squares."""
    floor = FLOOR * problem.y.shape[1]
    for count in (16, 24):
        least = np.maximum(sse.min(1), floor)
        least[0] = max(best.sse[0], floor)
        plausible = (dof * (sse / least[:, None] - 1.0) < 1.3 * stdtrit(dof, 0.995) ** 2).any(0)
        plausible[np.argmin(np.abs(rows.log_b - best.log_b[0]))] = True
        rows = narrower_rows(problem, rows, plausible, count)
        sse = _at(rows.log_b, rows.mid, problem, kappa)[1]
    lines = ridge(problem, rows, least[0] / dof)
    return lines, *_at(*lines.points(), problem, kappa)


def _polished(problem: Problem, lines: Ridge, sse: Array, kappa: Array) -> Optimum:
    """The exact optimum for every phi, from the best point of the grid."""
    log_b, mid = lines.points()
    start = np.argmin(sse, axis=1)
    y = np.repeat(problem.y, len(PHI), axis=0)
    return polish(replace(problem, y=y, kappa=kappa, phi=PHI), log_b[start], mid[start], steps=8)


def restricted_likelihood(x: Array, law: Law, best: Optimum, least: Array, dof: int, kappa: float) -> Array:
    """Log restricted (REML) likelihood of each phi with the mean curve linearised at the best fit, up to a constant."""
    u = np.exp(best.log_b[0]) * (x - best.mid[0])
    pull = max(best.d[0], 1e-6) * law.slope(u)
    jac = np.stack([np.ones_like(x), law.rise(u), pull * u, pull], axis=1)
    q = np.linalg.qr(np.vstack([jac, [np.sqrt(kappa), 0.0, 0.0, 0.0]]))[0]
    body, last = q[:-1], q[-1]
    whitened = np.stack([ar_product(column, PHI) for column in body.T])  # [4, F, n]
    gram = np.einsum("ifn,nj->fij", whitened, body) + np.outer(last, last)
    return -0.5 * dof * np.log(least) + 0.5 * np.log1p(-(PHI**2)) - 0.5 * np.linalg.slogdet(gram)[1]
