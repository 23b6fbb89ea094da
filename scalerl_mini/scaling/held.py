"""Least squares with one quantity held at a value, for many values and noise correlations at once.

The quantity is a point of the curve R(C*), the ceiling A = R(infinity), or a gain R(C1) - R(C0). Holding it leaves one
linear parameter and the shape: with R(C*) = v the curve is v + D (rise(C) - rise(C*)), with a gain v it is
R_0 + v rise(C) / (rise(C1) - rise(C0)). As in `polish`, the linear parameter is projected out and the shape takes damped
Gauss-Newton steps; all M problems move together as [M, n] arrays. Whitening by phi is one shift and one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scalerl_mini.scaling.normal import Array, Whitener, clip, dot
from scalerl_mini.scaling.polish import LOG_B_LIMITS, Problem


@dataclass(frozen=True)
class Quantity:
    """A point R(x) (`base` None) or a gain R(x) - R(base); both log compute, x = inf for the ceiling."""

    x: float
    base: float | None = None


CEILING = Quantity(np.inf)


@dataclass(frozen=True)
class HeldProblem:
    """M problems on the curve of `curve` (its first row of scores): phi, kappa and the held value, each [M]."""

    curve: Problem
    quantity: Quantity
    phi: Array
    kappa: Array
    value: Array

    @cached_property
    def whiten(self) -> Whitener:
        """Whitening by each problem's phi, of [M, n] or [1, n]."""
        return Whitener(self.phi)

    @cached_property
    def ones(self) -> Array:
        """The column of R_0, whitened: [M, n]."""
        return self.whiten(np.ones((1, len(self.curve.x))))

    @cached_property
    def rest(self) -> Array:
        """Scores minus the held value, whitened: [M, n]."""
        return self.whiten(self.curve.y[0] - self.value[:, None])


@dataclass
class _Point:
    """State at a shape: sum of squares, whitened residual, soft-R_0 residual; and the Jacobian columns of both, where a
    step is to follow."""

    sse: Array
    residual: Array
    soft: Array
    jac: tuple[Array, ...] = ()
    soft_jac: tuple[Array, ...] = ()


def least_held(
    problem: HeldProblem, log_b: Array, mid: Array, steps: int = 2, hold_b: bool = False
) -> tuple[Array, Array, Array]:
    """(least SSE, log B, log C_mid), each [M], from the starts log_b[M], mid[M]; `hold_b` moves C_mid alone."""
    damping = np.full(len(log_b), 1e-3)
    at = _evaluate(problem, log_b, mid)
    for step in range(steps):
        new_b, new_mid = _propose(problem, at, log_b, mid, damping)
        new_b = log_b if hold_b else new_b
        new = _evaluate(problem, new_b, new_mid, last=step == steps - 1)
        better = new.sse < at.sse
        if not new.jac:
            return np.minimum(new.sse, at.sse), np.where(better, new_b, log_b), np.where(better, new_mid, mid)
        gain = np.where(better, at.sse - new.sse, 0.0) / np.maximum(at.sse, 1e-300)
        damping = np.where(better, damping * 0.1, damping * 10.0)
        log_b, mid = np.where(better, new_b, log_b), np.where(better, new_mid, mid)
        at = new if better.all() else _merge(better, new, at)
        if gain.max() < 2e-4:
            break
    return at.sse, log_b, mid


def _merge(better: Array, new: _Point, old: _Point) -> _Point:
    wide = better[:, None]
    jac = tuple(np.where(wide, a, b) for a, b in zip(new.jac, old.jac, strict=True))
    soft_jac = tuple(np.where(better, a, b) for a, b in zip(new.soft_jac, old.soft_jac, strict=True))
    sse, soft = np.where(better, new.sse, old.sse), np.where(better, new.soft, old.soft)
    return _Point(sse, np.where(wide, new.residual, old.residual), soft, jac, soft_jac)


def _propose(problem: HeldProblem, at: _Point, log_b: Array, mid: Array, damping: Array) -> tuple[Array, Array]:
    (j1, j2), (s1, s2) = at.jac, at.soft_jac
    h11, h12, h22 = dot(j1, j1) + s1 * s1, dot(j1, j2) + s1 * s2, dot(j2, j2) + s2 * s2
    g1, g2 = dot(j1, at.residual) + s1 * at.soft, dot(j2, at.residual) + s2 * at.soft
    a, c = h11 * (1 + damping) + 1e-30, h22 * (1 + damping) + 1e-30
    det = np.maximum(a * c - h12**2, 1e-60)
    new_b = log_b + clip((c * g1 - h12 * g2) / det, -1.0, 1.0)
    new_mid = mid + clip((a * g2 - h12 * g1) / det, -2.0, 2.0)
    return clip(new_b, *LOG_B_LIMITS), clip(new_mid, *problem.curve.mid_limits)


def _evaluate(problem: HeldProblem, log_b: Array, mid: Array, last: bool = False) -> _Point:
    """State at the shapes; without a Jacobian when it is the `last`."""
    b = np.exp(log_b)
    u = b[:, None] * (problem.curve.x - mid[:, None])
    rise, slope = problem.curve.law.rise_and_slope(u)
    if problem.quantity.base is None:
        return _point(problem, b, mid, u, rise, slope, last)
    return _gain(problem, b, mid, u, rise, slope, last)


def _at(problem: HeldProblem, x: float, b: Array, mid: Array) -> tuple[Array, Array, Array]:
    """Rise at log compute x, and its derivatives by log B and by log C_mid, each [M]."""
    if np.isinf(x):
        return np.ones_like(b), np.zeros_like(b), np.zeros_like(b)
    u = b * (x - mid)
    rise, slope = problem.curve.law.rise_and_slope(u)
    return rise, slope * u, -slope * b


def _point(problem: HeldProblem, b: Array, mid: Array, u: Array, rise: Array, slope: Array, last: bool) -> _Point:
    box, value = problem.curve.box, problem.value
    star, star_b, star_mid = _at(problem, problem.quantity.x, b, mid)
    column = problem.whiten(rise - star[:, None])
    rest = problem.rest
    root = np.sqrt(problem.kappa)
    soft_column, soft_rest = -root * star, root * (problem.curve.r0 - value)
    size = np.maximum(dot(column, column) + soft_column**2, 1e-300)
    free = (dot(column, rest) + soft_column * soft_rest) / size
    by_low = (value - box.low) / np.maximum(star, 1e-12)
    by_high = np.where(star < 1.0 - 1e-9, (box.high - value) / np.maximum(1.0 - star, 1e-12), np.inf)
    d = clip(free, 0.0, np.maximum(np.minimum(by_low, by_high), 0.0))
    residual, soft = rest - d[:, None] * column, soft_rest - d * soft_column
    sse = dot(residual, residual) + soft**2
    if last:
        return _Point(sse, residual, soft)
    bound = np.where(by_low < by_high, -1.0 / np.maximum(star, 1e-12), 1.0 / np.maximum(1.0 - star, 1e-12))
    drift = np.where((d < free) & (d > 0), d * bound, 0.0)  # change of D per unit of rise(C*) when a bound sets D
    inner = (free == d).astype(float) / size
    jac, soft_jac = [], []
    for move, star_move in ((slope * u, star_b), (-slope * b[:, None], star_mid)):
        move -= star_move[:, None]
        j, s = d[:, None] * problem.whiten(move), -root * d * star_move
        share = drift * star_move - (dot(column, j) + soft_column * s) * inner
        j += share[:, None] * column
        jac.append(j)
        soft_jac.append(s + share * soft_column)
    return _Point(sse, residual, soft, tuple(jac), tuple(soft_jac))


def _gain(problem: HeldProblem, b: Array, mid: Array, u: Array, rise: Array, slope: Array, last: bool) -> _Point:
    assert problem.quantity.base is not None
    box = problem.curve.box
    top, base = _at(problem, problem.quantity.x, b, mid), _at(problem, problem.quantity.base, b, mid)
    span = np.maximum(top[0] - base[0], 1e-9)
    d = problem.value / span
    over = np.maximum(d - (box.high - box.low), 0.0)  # such a gain needs a rise beyond the box: priced out smoothly
    column = problem.ones
    rest = problem.whiten(problem.curve.y[0] - d[:, None] * rise)
    root = np.sqrt(problem.kappa)
    size = dot(column, column) + problem.kappa
    free = (dot(column, rest) + root * root * problem.curve.r0) / size
    r0 = clip(free, box.low, np.maximum(box.high - d, box.low))
    residual, soft = rest - r0[:, None] * column, root * (problem.curve.r0 - r0)
    sse = dot(residual, residual) + soft**2 + 1e3 * over**2
    if last:
        return _Point(sse, residual, soft)
    inner = (free == r0).astype(float) / size
    jac, soft_jac = [], []
    for k, move in enumerate((slope * u, -slope * b[:, None])):
        d_move = -d * (top[k + 1] - base[k + 1]) / span
        j = problem.whiten(d[:, None] * move + d_move[:, None] * rise)
        share = dot(column, j) * inner
        jac.append(j - share[:, None] * column)
        soft_jac.append(-share * root)
    return _Point(sse, residual, soft, tuple(jac), tuple(soft_jac))
