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
from scalerl_mini.scaling.normal import Array, Box, Normal, normal_equations, solve
from scalerl_mini.scaling.polish import Optimum, Problem, polish

PHI = np.array([-0.3, 0.0, 0.3, 0.55, 0.78, 0.93])
LOG_PRIOR = np.log(np.array([0.40, 0.14, 0.10, 0.09, 0.13, 0.12]) / 0.98)
# Few points hardly show a correlation, so with few degrees of freedom the prior leans towards large phi: this is added to
# it, times the factor of the kind of R_0, over the degrees of freedom. Calibrated at 8-15 evaluations; little is left at 40.
FEW = 5.0 * np.array([-0.5, -0.2, 0.0, 0.3, 0.6, 1.0])
FEW_FREE, FEW_KNOWN = 0.3, 1.2
# One evaluation's noise is known roughly: sd .003-.008 in measured runs. The prior counts as NOISE_DOF more residuals of
# sd NOISE_SD, kept within NOISE_SHOWN times the sd that the residuals show. So a few residuals that are small by luck, or
# because the curve has followed a slow noise and left too little of it, count for less; large ones are believed.
NOISE_DOF, NOISE_SD, NOISE_SHOWN = 1.0, 0.005, (1.5, 3.0)
WHITE = int(np.argmin(np.abs(PHI)))  # the place of independent noise in PHI
FLOOR = 1e-9  # mean square below which a residual is the rounding of four printed decimals, not noise
FIXED = 1e8  # weight of a known R_0 in the normal equations


@dataclass(frozen=True)
class Start:
    """What is known of R_0: nothing (`free`), a measurement with a standard deviation (`soft`), or its value (`fixed`)."""

    kind: str = "free"
    value: float = 0.0
    sd: float = 0.0


@dataclass(frozen=True)
class Surface:
    """Plausible shapes and their sums of squares. F values of phi, G grid points."""

    problem: Problem
    kappa: Array  # [F] weight of the R_0 observation
    weight: Array  # [F], sums to 1
    evidence: Array  # [F] log restricted likelihood plus log prior
    ridge: Ridge
    eq: Normal
    sse: Array  # [F, G]
    r0: Array  # [F, G]
    d: Array  # [F, G]
    least: Array  # [F]
    extra: Array  # [F] sum of squares that the prior on the noise adds
    best: Optimum  # [F]: the optimum for every phi
    exact: Optimum  # plain least squares to the last digit
    dof: int

    @property
    def t_dof(self) -> float:
        """Degrees of freedom of the t statistics: the residuals' and the prior's."""
        return self.dof + NOISE_DOF

    def squared_t(self, sse: Array, f: Array | slice = slice(None)) -> Array:
        """Squared t statistic of sums of squares [len(f), ...] against the least ones, for the phi numbers f."""
        shape = (-1, *[1] * (sse.ndim - 1))
        least, variance = self.least[f], (self.least[f] + self.extra[f]) / self.t_dof
        return np.minimum(np.maximum(sse - least.reshape(shape), 0.0) / variance.reshape(shape), 1e12)

    def best_rise(self, x: float) -> Array:
        """Share of the rise at log compute x, in the best fit of each phi: [F]."""
        if np.isinf(x):
            return np.ones_like(self.best.mid)
        return self.problem.law.rise(np.exp(self.best.log_b) * (x - self.best.mid))


def explore(x: Array, y: Array, law: Law, box: Box, start: Start, prior: Array = LOG_PRIOR) -> Surface:
    """Search all shapes for the scores y[n] (shifted by box.shift) at log compute x[n], ascending, n >= 6."""
    problem, kappa = _problem(x, y, law, box, start)
    dof = len(y) - 4 + (start.kind != "free")
    rows = coarse_rows(problem)
    rows, noise = _plausible_rows(problem, rows, kappa, dof)
    lines = ridge(problem, rows, noise)
    eq, r0, d, sse = _at(*lines.points(), problem, kappa)
    log_b, mid = lines.points()
    top = np.argmin(sse, axis=1)
    best = optima(problem, log_b[top], mid[top], kappa)
    exact = polish(problem, best.log_b[[WHITE]], best.mid[[WHITE]])
    floor = FLOOR * len(y)
    least = np.maximum(np.minimum(sse.min(1), best.sse), floor)
    extra = noise_prior(float(least[WHITE]), dof)
    likelihood = restricted_likelihood(x, law, exact, least + extra, dof + NOISE_DOF, kappa[WHITE])
    lean = FEW * (FEW_FREE if start.kind == "free" else FEW_KNOWN) / dof
    evidence = prior + lean + likelihood + 0.5 * NOISE_DOF * np.log(extra)
    weight = np.exp(evidence - evidence.max())
    return Surface(
        problem, kappa, weight / weight.sum(), evidence, lines, eq, sse, r0, d, least, extra, best, exact, dof
    )


def noise_prior(least: float, dof: int) -> Array:
    """Sum of squares that the prior on the noise adds for each phi, [F]: of innovations, as all sums of squares here.

    `least` and `dof` are those of independent noise; an inverse gamma prior on the variance, so everything stays a t.
    """
    shown = float(np.sqrt(least / dof))
    sd = min(max(NOISE_SD, NOISE_SHOWN[0] * shown), NOISE_SHOWN[1] * shown)
    return NOISE_DOF * sd**2 * (1.0 - PHI**2)


def _problem(x: Array, y: Array, law: Law, box: Box, start: Start) -> tuple[Problem, Array]:
    """The independent-noise problem, and the weight of the R_0 observation for each phi.

    That weight is the innovation variance of the free fit over the variance of the measurement.
    """
    problem = Problem(x, y[None], law, box, mid_limits(x), 0.0, start.value - box.shift)
    if start.kind == "free":
        return problem, np.zeros(len(PHI))
    if start.kind == "fixed":
        kappa = np.full(len(PHI), FIXED * len(y))
    else:
        kappa = np.maximum(free_least(problem), FLOOR * len(y)) / max(len(y) - 4, 1) / start.sd**2
    return replace(problem, kappa=float(kappa[WHITE])), kappa


def free_least(problem: Problem) -> Array:
    """Least sum of squares for each phi with R_0 free: [F]."""
    free = replace(problem, kappa=0.0)
    rows = coarse_rows(free)
    top = np.full(len(PHI), np.argmin(rows.sse))
    return optima(free, rows.log_b[top], rows.mid[top], np.zeros(len(PHI))).sse


def optima(problem: Problem, log_b: Array, mid: Array, kappa: Array) -> Optimum:
    """The optimum for every phi (to 1e-5 of its sum of squares), from the given starts [F]."""
    y = np.repeat(problem.y, len(PHI), axis=0)
    return polish(replace(problem, y=y, kappa=kappa, phi=PHI), log_b, mid, steps=8, tolerance=1e-5)


def _at(log_b: Array, mid: Array, problem: Problem, kappa: Array) -> tuple[Normal, Array, Array, Array]:
    """Normal equations, r0, D and SSE at the given shapes, for every phi."""
    rise = problem.law.rise(np.exp(log_b)[:, None] * (problem.x - mid[:, None]))
    eq = normal_equations(rise, problem.y[0], PHI, kappa, problem.r0)
    return eq, *solve(eq, problem.box)


def _plausible_rows(problem: Problem, rows: Optimum, kappa: Array, dof: int) -> tuple[Optimum, float]:
    """Rows over the values of B that some phi finds plausible, and the noise variance."""
    sse = _at(rows.log_b, rows.mid, problem, kappa)[3]
    least = np.maximum(sse.min(1), FLOOR * problem.y.shape[1])
    extra, t_dof = noise_prior(float(least[WHITE]), dof), dof + NOISE_DOF
    far = 1.3 * stdtrit(t_dof, 0.995) ** 2 / t_dof * (least + extra)
    rows = narrower_rows(problem, rows, (sse - least[:, None] < far[:, None]).any(0))
    return rows, float(max(rows.sse.min(), FLOOR * problem.y.shape[1]) + extra[WHITE]) / t_dof


def restricted_likelihood(x: Array, law: Law, at: Optimum, least: Array, dof: float, kappa: float) -> Array:
    """Log restricted (REML) likelihood of each phi with the mean curve linearised at the best fit, up to a constant."""
    u = np.exp(at.log_b[0]) * (x - at.mid[0])
    rise, slope = law.rise_and_slope(u)
    pull = max(at.d[0], 1e-6) * slope
    jac = np.stack([np.ones_like(x), rise, pull * u, pull], axis=1)
    q = np.linalg.qr(np.vstack([jac, [np.sqrt(kappa), 0.0, 0.0, 0.0]]))[0]
    body, ends, last = q[:-1], q[[0, -2]], q[-1:]
    lag = body[1:].T @ body[:-1]
    phi = PHI[:, None, None]
    gram = (1.0 + phi**2) * (body.T @ body) - phi**2 * (ends.T @ ends) - phi * (lag + lag.T) + last.T @ last
    return -0.5 * dof * np.log(least) + 0.5 * np.log1p(-(PHI**2)) - 0.5 * np.linalg.slogdet(gram)[1]
