"""Least squares to the last digit: Kaufman's variable projection, a Levenberg-Marquardt step on (log B, log C_mid) alone.

(R_0, D) are solved in closed form inside every step, so a step is a 2 x 2 system; many curves or starts are polished
together, everything elementwise on [M, n]. At an active bound (A at its cap, R_0 at 0) the projection uses only the
linear direction that is still free, so the bounded optimum is exact too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scalerl_mini.scaling.laws import Law
from scalerl_mini.scaling.normal import Array, Box, Whitener, clip, dot

LOG_B_LIMITS = (float(np.log(0.2)), float(np.log(8.0)))  # covers every curve seen; B at 8 is a step, not a sigmoid


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

    def repeat(self, times: int) -> Problem:
        """The first curve, `times` over."""
        return replace(self, y=np.broadcast_to(self.y[:1], (times, self.y.shape[1])))

    def white(self, v: Array) -> Array:
        """v[M, n] in units of independent innovations."""
        return v if self.phi is None else self._whitener(v)

    @cached_property
    def _whitener(self) -> Whitener:
        assert self.phi is not None
        return Whitener(self.phi)

    @cached_property
    def white_y(self) -> Array:
        """The scores, whitened: [M, n]."""
        return self.white(self.y)

    @cached_property
    def ones(self) -> Array:
        """The column of R_0, whitened: [M, n]."""
        return self.white(np.ones_like(self.y))

    @cached_property
    def sums(self) -> tuple[Array, Array]:
        """m00 and b0 of the normal equations, each [M]."""
        return dot(self.ones, self.ones) + self.kappa, dot(self.ones, self.white_y) + self.kappa * self.r0


@dataclass
class Optimum:
    """M fits, each array [M]; r0 relative to the box's shift. `h`, `g`: projected J'J (11, 12, 22) and J'residual by
    (log B, log C_mid); where B is held, those of log C_mid alone."""

    log_b: Array
    mid: Array
    r0: Array
    d: Array
    sse: Array
    h: tuple[Array, ...]
    g: tuple[Array, ...]


def polish(problem: Problem, log_b: Array, mid: Array, steps: int = 300, hold_b: bool = False,
           tolerance: float = 1e-15) -> Optimum:  # fmt: skip
    """Least squares from the given starts (log_b[M], mid[M]); `hold_b` moves C_mid alone. Stops when no sum of
    squares falls by more than `tolerance` of itself."""
    at = evaluate(problem, np.asarray(log_b, float), np.asarray(mid, float), hold_b)
    damping = np.full(len(at.sse), 1e-3)
    for _ in range(steps):
        new_b, new_mid = _propose(problem, at, damping, hold_b)
        new = evaluate(problem, new_b, new_mid, hold_b)
        better = new.sse < at.sse
        moved = np.abs(new_mid - at.mid) + np.abs(new_b - at.log_b)
        busy = (moved > 1e-11) & (at.sse - new.sse > tolerance * at.sse)
        if better.all():
            damping, at = damping * 0.1, new
        else:
            busy |= ~better & (damping < 1e6) & (moved > 1e-9)
            damping, at = np.where(better, damping * 0.1, damping * 10.0), _merge(better, new, at)
        if not busy.any():
            break
    return at


def _merge(better: Array, new: Optimum, old: Optimum) -> Optimum:
    keep = {k: np.where(better, getattr(new, k), getattr(old, k)) for k in ("log_b", "mid", "r0", "d", "sse")}
    h = [np.where(better, a, b) for a, b in zip(new.h, old.h, strict=True)]
    g = [np.where(better, a, b) for a, b in zip(new.g, old.g, strict=True)]
    return Optimum(**keep, h=tuple(h), g=tuple(g))


def _propose(problem: Problem, at: Optimum, damping: Array, hold_b: bool) -> tuple[Array, Array]:
    """Damped Gauss-Newton step, held at a limit that it would leave, and clipped."""
    low, high = problem.mid_limits
    c, g2 = at.h[-1] * (1.0 + damping) + 1e-30, at.g[-1]
    if hold_b:
        return at.log_b, clip(at.mid + clip(g2 / c, -2.0, 2.0), low, high)
    h11, h12, g1 = at.h[0], at.h[1], at.g[0]
    low_b, high_b = LOG_B_LIMITS
    if ((at.mid <= low) | (at.mid >= high) | (at.log_b <= low_b) | (at.log_b >= high_b)).any():
        out2 = ((at.mid <= low) & (g2 < 0)) | ((at.mid >= high) & (g2 > 0))
        out1 = ((at.log_b <= low_b) & (g1 < 0)) | ((at.log_b >= high_b) & (g1 > 0))
        g1, g2 = np.where(out1, 0.0, g1), np.where(out2, 0.0, g2)
        h12 = np.where(out1 | out2, 0.0, h12)
    a = h11 * (1.0 + damping) + 1e-30
    det = np.maximum(a * c - h12**2, 1e-60)
    new_b = at.log_b + clip((c * g1 - h12 * g2) / det, -1.0, 1.0)
    return clip(new_b, low_b, high_b), clip(at.mid + clip((a * g2 - h12 * g1) / det, -2.0, 2.0), low, high)


def evaluate(problem: Problem, log_b: Array, mid: Array, hold_b: bool = False) -> Optimum:
    """The linear part in closed form at the given shapes, with the curvature and slope that the next step needs."""
    b = np.exp(log_b)[:, None]
    u = b * (problem.x - mid[:, None])
    rise, slope = problem.law.rise_and_slope(u)
    column = problem.white(rise)
    r0, d, free = _linear(problem, column)
    residual = problem.white_y - r0[:, None] * problem.ones - d[:, None] * column
    sse = dot(residual, residual) + problem.kappa * (problem.r0 - r0) ** 2
    pull = d[:, None] * slope
    by_mid = _shadow(problem.white(-b * pull), free)
    h22, g2 = _square(by_mid, free), dot(by_mid[0], residual)
    if hold_b:
        return Optimum(log_b, mid, r0, d, sse, (h22,), (g2,))
    by_b = _shadow(problem.white(pull * u), free)
    h = _square(by_b, free), _product(by_b, by_mid, free), h22
    return Optimum(log_b, mid, r0, d, sse, h, (dot(by_b[0], residual), g2))


def _linear(problem: Problem, column: Array):
    """(r0, D) inside the box, and the free linear directions: two columns and their Gram entries."""
    (m00, b0), m01, m11 = problem.sums, dot(problem.ones, column), dot(column, column)
    b1 = dot(column, problem.white_y)
    det = m00 * m11 - m01**2
    good = det > 1e-13 * m00 * m11
    det = np.where(good, det, 1.0)
    r0, d = (m11 * b0 - m01 * b1) / det, (m00 * b1 - m01 * b0) / det
    box = problem.box
    inside = good & (r0 >= box.low) & (d >= 0.0) & (r0 + d <= box.high)
    if inside.all():
        return r0, d, (problem.ones, column, m00, m01, m11, det)
    edge_r0, edge_d, edge = _edges(problem, column, (m00, m01, m11, b0, b1))
    r0, d = np.where(inside, r0, edge_r0), np.where(inside, d, edge_d)
    wide, one = inside[:, None], np.ones_like(m00)
    first = np.where(wide, problem.ones, edge)
    aa = np.where(inside, m00, np.maximum(dot(edge, edge) + problem.kappa * (edge_r0 > box.low), 1e-300))
    second = np.where(wide, column, 0.0)
    ab, bb = np.where(inside, m01, 0.0), np.where(inside, m11, one)
    return r0, d, (first, second, aa, ab, bb, np.where(inside, det, aa))


def _edges(problem: Problem, column: Array, sums: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    """The best point on the three edges of the box, and the linear direction that is free there (0 at a corner)."""
    m00, m01, m11, b0, b1 = sums
    low, high = problem.box.low, problem.box.high
    flat = clip(b0 / m00, low, high)
    low_d = clip((b1 - m01 * low) / np.maximum(m11, 1e-300), 0.0, high - low)
    high_r0 = (b0 - b1 - high * (m01 - m11)) / np.maximum(m00 - 2.0 * m01 + m11, 1e-300)
    high_r0 = clip(high_r0, low, high)
    high_d = high - high_r0
    on_flat = flat * (m00 * flat - 2.0 * b0)
    on_low = low * (m00 * low + 2.0 * (m01 * low_d - b0)) + low_d * (m11 * low_d - 2.0 * b1)
    on_high = high_r0 * (m00 * high_r0 + 2.0 * (m01 * high_d - b0)) + high_d * (m11 * high_d - 2.0 * b1)
    least = np.minimum(np.minimum(on_flat, on_low), on_high)
    first, second = on_flat <= least, on_low <= least
    r0, d = np.where(first, flat, np.where(second, low, high_r0)), np.where(first, 0.0, np.where(second, low_d, high_d))
    corner = (r0 <= low) & (r0 + d >= high)
    by_ones = ~corner & (
        first | ~second
    )  # R_0 moves along the edge; along the low one D moves, along the high one both
    by_column = np.where(corner | first, 0.0, np.where(second, 1.0, -1.0))
    return r0, d, by_ones[:, None] * problem.ones + by_column[:, None] * column


def _shadow(j: Array, free: tuple) -> tuple[Array, Array, Array]:
    """A Jacobian column with its inner products with the two free linear directions."""
    return j, dot(free[0], j), dot(free[1], j)


def _product(one: tuple[Array, Array, Array], other: tuple[Array, Array, Array], free: tuple) -> Array:
    """Inner product of two columns after projecting out the free linear directions: [M]."""
    (j1, p1, q1), (j2, p2, q2), (aa, ab, bb, det) = one, other, free[2:]
    return dot(j1, j2) - (bb * p1 * p2 - ab * (p1 * q2 + q1 * p2) + aa * q1 * q2) / det


def _square(one: tuple[Array, Array, Array], free: tuple) -> Array:
    """The same of a column with itself, never negative."""
    (j, p, q), (aa, ab, bb, det) = one, free[2:]
    return np.maximum(dot(j, j) - (bb * p * p - 2.0 * ab * p * q + aa * q * q) / det, 0.0)
