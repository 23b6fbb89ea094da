"""Confidence distributions: for any quantity, the probability that the data give to "it is at most this value".

A quantity of the curve (the ceiling A, R(C), a gain R(C1) - R(C0)) has its own profile: the least sum of squares with
the quantity held at a value, over all shapes. Its signed root is a t statistic; averaged over phi it is a distribution,
from which intervals, P(gain > delta) and P(A1 > A2) are all read. There is no volume term, so an unidentified ceiling is
reported as such instead of being pulled to the middle of the allowed range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from scalerl_mini.scaling.grid import Ridge
from scalerl_mini.scaling.held import HeldProblem, Quantity, least_held
from scalerl_mini.scaling.normal import Array, clip, held_precision
from scalerl_mini.scaling.polish import LOG_B_LIMITS
from scalerl_mini.scaling.surface import PHI, Surface

TAIL = 0.995  # a quantity is profiled out to this t quantile on both sides ...
SPACING = np.array([0.0, 0.04, 0.14, 0.32, 0.6, 1.0])  # ... at these shares of the way
LIGHT = 0.01  # phi values with less weight than this are left out


@dataclass(frozen=True)
class Distribution:
    """P(quantity <= value) on ascending `values`; below the first it is 0, at or beyond the last it may stay below 1."""

    values: Array
    cdf: Array
    low: float = -np.inf  # the range that is allowed at all (A <= 1, B <= 8 ...)
    high: float = np.inf

    def quantile(self, p: float) -> float:
        """The value below which the quantity lies with probability p; the last value when p is never reached."""
        if p <= self.cdf[0]:
            return float(self.values[0])
        if p >= self.cdf[-1]:
            return float(self.values[-1])
        return float(np.interp(p, self.cdf, self.values))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Central interval of the given level."""
        return self.quantile(0.5 * (1 - level)), self.quantile(0.5 * (1 + level))

    def above(self, value: float) -> float:
        """P(quantity > value)."""
        if value >= self.high:
            return 0.0
        if value < self.low:
            return 1.0
        return float(1.0 - np.interp(value, self.values, self.cdf, left=0.0, right=1.0))


def distribution(surface: Surface, quantity: Quantity) -> Distribution:
    """Confidence distribution of a point of the curve, its ceiling, or a gain, under one law."""
    heavy = np.flatnonzero(surface.weight > LIGHT)
    k0 = 1.0 if quantity.base is None else 0.0
    offset = k0 * surface.problem.box.shift
    box = surface.problem.box
    low, high = (box.low, box.high) if k0 else (0.0, box.high - box.low)
    middle = _best(surface, quantity)[heavy]
    targets, log_b, mid = _starts(surface, heavy, middle, k0, _k1(surface, quantity), low, high)
    many = targets.shape[1]
    phi, kappa = np.repeat(PHI[heavy], many), np.repeat(surface.kappa[heavy], many)
    problem = HeldProblem(surface.problem, quantity, phi, kappa, targets.ravel())
    sse = least_held(problem, log_b.ravel(), mid.ravel())[0].reshape(targets.shape)
    values = np.unique(targets)
    root = np.sign(targets - middle[:, None]) * np.sqrt(surface.squared_t(sse, heavy))
    root = np.maximum.accumulate(root, axis=1)
    roots = np.stack([np.interp(values, targets[i], root[i]) for i in range(len(heavy))])
    cdf = surface.weight[heavy] @ stdtr(surface.t_dof, roots) / surface.weight[heavy].sum()
    return Distribution(values + offset, np.maximum.accumulate(cdf), low + offset, high + offset)


def _best(surface: Surface, quantity: Quantity) -> Array:
    """The quantity in the best fit of each phi, shifted: [F]."""
    rise = surface.best_rise(quantity.x)
    if quantity.base is None:
        return surface.best.r0 + surface.best.d * rise
    return surface.best.d * (rise - surface.best_rise(quantity.base))


def _k1(surface: Surface, quantity: Quantity) -> Array:
    """Factor of D in the quantity at every grid point."""
    log_b, mid = surface.ridge.points()

    def rise(x: float) -> Array:
        return np.ones_like(mid) if np.isinf(x) else surface.problem.law.rise(np.exp(log_b) * (x - mid))

    return np.maximum(rise(quantity.x) - (0.0 if quantity.base is None else rise(quantity.base)), 1e-9)


def _starts(surface: Surface, heavy: Array, middle: Array, k0: float, k1: Array, low: float, high: float):
    """Values to profile at, for every phi its own: its best value, and steps out to where the grid says that t is large.

    Returns (values, log B, log C_mid), each [F, T]: the shapes are the grid's best for that value, to start from.
    """
    precision = held_precision(surface.eq, k0, k1)[heavy]
    base, centre = surface.sse[heavy], k0 * surface.r0[heavy] + k1 * surface.d[heavy]
    least, extra = surface.least[heavy][:, None], surface.extra[heavy][:, None]
    every, best = np.arange(len(heavy)), np.argmin(base, axis=1)
    slack = least + stdtrit(surface.t_dof, TAIL) ** 2 / surface.t_dof * (least + extra) - base
    slack[every, best] = np.maximum(slack[every, best], 0.1 * least[:, 0])
    half = np.sqrt(np.maximum(slack, 0.0) / precision)
    bottom = np.clip(np.where(slack > 0, centre - half, np.inf).min(1), low, middle)
    top = np.clip(np.where(slack > 0, centre + half, -np.inf).max(1), middle, high)
    down = middle[:, None] - (middle - bottom)[:, None] * SPACING[:0:-1]
    values = np.concatenate([down, middle[:, None] + (top - middle)[:, None] * SPACING], axis=1)
    some = np.flatnonzero((slack > 0).any(0))
    steep, away = precision[:, some], centre[:, some] - middle[:, None]
    away *= steep
    square = np.stack([base[:, some] + away * (centre[:, some] - middle[:, None]), -2.0 * away, steep], axis=1)
    moved = values - middle[:, None]
    start = some[np.argmin(np.stack([np.ones_like(moved), moved, moved * moved], axis=2) @ square, axis=2)]
    log_b, mid = surface.ridge.points()
    return values, log_b[start], mid[start]


def shape_b(surface: Surface) -> Distribution:
    """Confidence distribution of the exponent B."""
    rows = surface.ridge.log_b
    sse = surface.sse.reshape(len(PHI), *surface.ridge.mids.shape).min(2)
    return _shape(surface, rows, sse, surface.best.log_b, LOG_B_LIMITS)


def shape_c_mid(surface: Surface) -> Distribution:
    """Confidence distribution of C_mid, in the curve's unit of compute."""
    heavy = np.flatnonzero(surface.weight > LIGHT)
    mids = surface.ridge.mids
    near = surface.squared_t(surface.sse[heavy], heavy).min(0) < 1.5 * stdtrit(surface.t_dof, TAIL) ** 2
    inside = mids.ravel()[near] if near.any() else surface.best.mid[:1]
    values = np.unique(np.concatenate([np.linspace(inside.min(), inside.max(), 25), surface.best.mid[heavy]]))
    sse = np.full((len(PHI), len(values)), np.inf)
    sse[heavy] = _least_over_rows(surface.ridge, surface.sse[heavy], values)
    return _shape(surface, values, sse, surface.best.mid, surface.problem.mid_limits)


def _least_over_rows(ridge: Ridge, sse: Array, values: Array) -> Array:
    """Least sum of squares at each C_mid of `values`[V] over the J rows: sse[F, J * K], interpolated along each row, inf
    beyond its ends; [F, V]."""
    mids = ridge.mids
    first = ridge.places(values) + mids.shape[1] * np.arange(len(mids))[:, None]
    low, high = mids.ravel()[first], mids.ravel()[first + 1]
    share = clip((values - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    start = sse[:, first]
    line = start + share * (sse[:, first + 1] - start)
    beyond = (values < mids[:, :1]) | (values > mids[:, -1:])
    return np.where(beyond, np.inf, line).min(1)


def _shape(surface: Surface, log_values: Array, sse: Array, best: Array, limits: tuple[float, float]) -> Distribution:
    root = np.sign(log_values - best[:, None]) * np.sqrt(surface.squared_t(sse))
    cdf = surface.weight @ stdtr(surface.t_dof, np.maximum.accumulate(root, axis=1))
    low, high = np.exp(limits[0]), np.exp(limits[1])
    return Distribution(np.exp(log_values), np.clip(np.maximum.accumulate(cdf), 0.0, 1.0), float(low), float(high))


def mixture(parts: list[Distribution], weights: Array) -> Distribution:
    """Average of distributions with the given weights (rescaled to sum to 1)."""
    weights = np.asarray(weights) / np.sum(weights)
    values = np.unique(np.concatenate([p.values for p in parts]))
    cdf = sum(w * np.interp(values, p.values, p.cdf, left=0.0) for w, p in zip(weights, parts, strict=True))
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    return Distribution(values, np.asarray(cdf), low, high)


def greater(first: Distribution, second: Distribution) -> float:
    """P(first > second) for independent quantities; mass beyond both ranges (two unidentified ceilings) counts half."""
    values = np.unique(np.concatenate([first.values, second.values]))
    f = np.interp(values, first.values, first.cdf, left=0.0)
    s = np.interp(values, second.values, second.cdf, left=0.0)
    step = np.diff(np.concatenate([[0.0], f, [1.0]]))
    middle = np.concatenate([[0.5 * s[0]], 0.5 * (s[1:] + s[:-1]), [0.5 * (s[-1] + 1.0)]])
    return float(np.clip(step @ middle, 0.0, 1.0))
