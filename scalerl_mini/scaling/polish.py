"""Least squares to the last digit: Kaufman's variable projection, a Levenberg-Marquardt step on (log B, log C_mid) alone.

(R_0, D) are solved in closed form inside every step, so a step is a 2 x 2 system; many curves or starts are polished
together, everything elementwise on [M, n]. At an active bound (A at its cap, R_0 at 0) the projection uses only the
linear direction that is still free, so the bounded optimum is exact too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scalerl_mini.scaling.laws import Law
from scalerl_mini.scaling.normal import Array, Box, dot, whiten

LOG_B_LIMITS = (np.log(0.2), np.log(8.0))  # covers every curve seen; B at 8 is a step, not a sigmoid


@dataclass
class Optimum:
    """Parameters and sums of squares of M fits, each array [M]; r0 relative to the box's shift."""

    log_b: Array
    mid: Array
    r0: Array
    d: Array
    sse: Array


@dataclass(frozen=True)
class Problem:
    """M curves on the same log compute x[n]: scores y[M, n] (shifted), a soft R_0 of weight kappa (0: none), the bounds.

    `phi` [M]: the noise is AR(1) and all sums of squares are of its innovations; None: independent noise.
    """

    x: Array
    y: Array
    law: Law
    box: Box
    mid_limits: tuple[float, float]
    kappa: Array | float = 0.0
    r0: float = 0.0
    phi: Array | None = None

    def take(self, keep: Array) -> Problem:
        """The same problem for some of the curves (indices, repeats allowed, or booleans)."""
        kappa = self.kappa[keep] if isinstance(self.kappa, np.ndarray) else self.kappa
        phi = None if self.phi is None else self.phi[keep]
        return replace(self, y=self.y[keep], kappa=kappa, phi=phi)

    def white(self, v: Array) -> Array:
        """v[M, n] in units of independent innovations."""
        return v if self.phi is None else whiten(v, self.phi)


def linear_part(problem: Problem, rise: Array) -> tuple[Array, Array, Array]:
    """(r0, D, SSE) in closed form for rise[M, n], inside the box; SSE from residuals, free of cancellation."""
    kappa, box = problem.kappa, problem.box
    y, one, column = problem.white(problem.y), problem.white(np.ones_like(problem.y)), problem.white(rise)
    m00, m01, m11 = dot(one, one) + kappa, dot(one, column), dot(column, column)
    b0, b1 = dot(one, y) + kappa * problem.r0, dot(column, y)
    det = m00 * m11 - m01**2
    good = det > 1e-13 * m00 * m11
    det = np.where(good, det, 1.0)
    r0, d = (m11 * b0 - m01 * b1) / det, (m00 * b1 - m01 * b0) / det
    inside = good & (r0 >= box.low) & (d >= 0.0) & (r0 + d <= box.high)
    if not inside.all():
        r0, d = _bounded(problem, rise, (m00, m01, m11, b0, b1), (r0, d, inside))
    return r0, d, sum_of_squares(problem, rise, r0, d)


def sum_of_squares(problem: Problem, rise: Array, r0: Array, d: Array) -> Array:
    """Residual sum of squares [M], the soft observation included."""
    res = problem.white(problem.y - r0[:, None] - d[:, None] * rise)
    return dot(res, res) + problem.kappa * (problem.r0 - r0) ** 2


def _bounded(problem: Problem, rise: Array, sums: tuple, free: tuple) -> tuple[Array, Array]:
    m00, m01, m11, b0, b1 = sums
    r0, d, inside = free
    low, high = problem.box.low, problem.box.high
    flat = np.clip(b0 / m00, low, high)
    low_d = np.clip((b1 - m01 * low) / np.maximum(m11, 1e-300), 0.0, high - low)
    high_r0 = (b0 - b1 - high * (m01 - m11)) / np.maximum(m00 - 2.0 * m01 + m11, 1e-300)
    high_r0 = np.clip(high_r0, low, high)
    r0s = [flat, np.full_like(flat, low), high_r0]
    ds = [np.zeros_like(flat), low_d, high - high_r0]
    sse = np.stack([sum_of_squares(problem, rise, a, b) for a, b in zip(r0s, ds, strict=True)])
    best = np.argmin(sse, axis=0)[None]
    edge_r0, edge_d = (np.take_along_axis(np.stack(v), best, 0)[0] for v in (r0s, ds))
    return np.where(inside, r0, edge_r0), np.where(inside, d, edge_d)


def polish(problem: Problem, log_b: Array, mid: Array, steps: int = 60, hold_b: bool = False) -> Optimum:
    """Least squares from the given starts (log_b[M], mid[M]); `hold_b` moves C_mid alone. Stops when nothing moves."""
    now = _state(problem, np.array(log_b, float), np.array(mid, float))
    damping = np.full(len(now.sse), 1e-3)
    active = np.arange(len(now.sse))
    for _ in range(steps):
        part = problem.take(active)
        here = _rows(now, active)
        log_b, mid, still = _step(part, here, damping[active], hold_b)
        new = _state(part, log_b, mid)
        better = new.sse < here.sse
        _assign(now, active[better], _rows(new, better))
        damping[active] = np.clip(np.where(better, damping[active] * 0.1, damping[active] * 8.0), 1e-12, 1e10)
        gain = (here.sse - new.sse) / np.maximum(here.sse, 1e-300)
        active = active[still & ~(better & (gain < 1e-14)) & (damping[active] < 1e9)]
        if not active.size:
            break
    return now


def _state(problem: Problem, log_b: Array, mid: Array) -> Optimum:
    rise = problem.law.rise(np.exp(log_b)[:, None] * (problem.x - mid[:, None]))
    return Optimum(log_b, mid, *linear_part(problem, rise))


def _rows(opt: Optimum, keep: Array) -> Optimum:
    return Optimum(opt.log_b[keep], opt.mid[keep], opt.r0[keep], opt.d[keep], opt.sse[keep])


def _assign(target: Optimum, where: Array, values: Optimum) -> None:
    for name in ("log_b", "mid", "r0", "d", "sse"):
        getattr(target, name)[where] = getattr(values, name)


def _step(problem: Problem, at: Optimum, damping: Array, hold_b: bool) -> tuple[Array, Array, Array]:
    """Damped Gauss-Newton proposal, clipped to the limits, and which curves still move."""
    b = np.exp(at.log_b)[:, None]
    u = b * (problem.x - at.mid[:, None])
    rise = problem.law.rise(u)
    pull = at.d[:, None] * problem.law.slope(u)
    jac = (problem.white(pull * u), problem.white(-pull * b))
    residual = problem.white(problem.y - at.r0[:, None] - at.d[:, None] * rise)
    h11, h12, h22 = _projected_gram(problem, at, rise, jac)
    g1, g2 = dot(jac[0], residual), dot(jac[1], residual)
    fixed1, fixed2 = _pinned(at.log_b, g1, LOG_B_LIMITS) | hold_b, _pinned(at.mid, g2, problem.mid_limits)
    g1, g2 = np.where(fixed1, 0.0, g1), np.where(fixed2, 0.0, g2)
    h12 = np.where(fixed1 | fixed2, 0.0, h12)
    a, c = h11 * (1 + damping) + 1e-30, h22 * (1 + damping) + 1e-30
    det = np.maximum(a * c - h12**2, 1e-60)
    d1 = np.clip((c * g1 - h12 * g2) / det, -1.0, 1.0)
    d2 = np.clip((a * g2 - h12 * g1) / det, -2.0, 2.0)
    still = (np.abs(d1) > 1e-12) | (np.abs(d2) > 1e-12)
    return np.clip(at.log_b + d1, *LOG_B_LIMITS), np.clip(at.mid + d2, *problem.mid_limits), still


def mid_curvature(problem: Problem, at: Optimum) -> Array:
    """Half the second derivative of the sum of squares along log C_mid, R_0 and D free: [M]."""
    b = np.exp(at.log_b)[:, None]
    u = b * (problem.x - at.mid[:, None])
    pull = problem.white(-at.d[:, None] * problem.law.slope(u) * b)
    return _projected_gram(problem, at, problem.law.rise(u), (pull, pull))[0]


def _pinned(value: Array, gradient: Array, limits: tuple[float, float]) -> Array:
    """At a limit with the sum of squares still falling outwards: hold the parameter there."""
    return ((value <= limits[0]) & (gradient < 0)) | ((value >= limits[1]) & (gradient > 0))


def _projected_gram(problem: Problem, at: Optimum, rise: Array, jac: tuple[Array, Array]) -> tuple[Array, Array, Array]:
    """J'J after projecting out the linear directions that are free at this point: entries 11, 12, 22, each [M]."""
    tol = 1e-12
    at_low, at_cap = at.r0 <= problem.box.low + tol, at.r0 + at.d >= problem.box.high - tol
    first = problem.white(np.where(at_low, 0.0, 1.0)[:, None] * np.where(at_cap[:, None], 1.0 - rise, 1.0))
    second = problem.white(np.where(at_cap, 0.0, 1.0)[:, None] * rise)
    aa = dot(first, first) + problem.kappa * ~at_low
    ab, bb = dot(first, second), dot(second, second)
    aa, bb = np.where(at_low, 1.0, np.maximum(aa, 1e-300)), np.where(at_cap, 1.0, np.maximum(bb, 1e-300))
    det = np.maximum(aa * bb - ab**2, 1e-14 * aa * bb)
    p = [(dot(first, j), dot(second, j)) for j in jac]

    def entry(i: int, k: int) -> Array:
        (pi, qi), (pk, qk) = p[i], p[k]
        return dot(jac[i], jac[k]) - (bb * pi * pk - ab * (pi * qk + qi * pk) + aa * qi * qk) / det

    return np.maximum(entry(0, 0), 0.0), entry(0, 1), np.maximum(entry(1, 1), 0.0)
