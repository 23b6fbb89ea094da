"""Is there a sigmoid rise to fit at all, and what should make the reader doubt the fit: status and flags.

Thresholds come from simulated faults (docs/fitting.md); each flag's hit and false-alarm rates are in `simulate validate`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtrc

from scalerl_mini.scaling.normal import Array
from scalerl_mini.scaling.surface import PHI, Surface

FEWEST = 6
RISE_P = 0.05  # averaged over phi this is rarer: 1-2 % of flat curves pass, at any phi
FAR_BELOW = 6.0  # standard deviations: 61 % of simulated transients, 7 % of clean curves
SMALL_EVAL = 0.006  # evaluations noisier than this cannot fix A within .02 before 5 or more C_mid


def difference_noise(y: Array) -> float:
    """Standard deviation of one evaluation's noise from second differences, blind to a smooth curve (0 when n < 3)."""
    if len(y) < 3:
        return 0.0
    first = y[1:] - y[:-1]
    second = first[1:] - first[:-1]
    return median(np.abs(second - median(second))) / (0.6745 * np.sqrt(6.0))


def median(v: Array) -> float:
    """Median of finite v[n], n >= 1; `np.median` spends ten times as long on checks."""
    ordered, half = np.sort(v), len(v) // 2
    return float(0.5 * (ordered[half] + ordered[(len(v) - 1) // 2]))


def collapse(y: Array) -> tuple[float, int] | None:
    """(fall, index of the peak) when the curve ends far below its running peak, else None."""
    if len(y) < 5:
        return None
    a, b, c = y[:-2], y[1:-1], y[2:]
    middle = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))  # running median of three
    fall = float(middle.max() - middle[-1])
    if fall <= max(4.0 * difference_noise(y), 0.02):
        return None
    return fall, int(np.argmax(middle)) + 1


def rises(surface: Surface) -> bool:
    """F test of the fitted law against a constant, averaged over phi as the intervals are."""
    if surface.exact.d[0] <= 1e-9:
        return False
    flat = _constant_sse(surface)
    more = 3.0  # parameters than a constant has
    return bool(surface.weight @ fdtrc(more, surface.t_dof, surface.squared_t(flat) / more) < RISE_P)


def _constant_sse(surface: Surface) -> Array:
    """Least sum of squares of a constant for each phi: [F]."""
    eq = surface.eq
    return np.maximum((eq.yy - eq.b0**2 / eq.m00)[:, 0], 0.0)


def residual_flags(residual: Array, y: Array) -> list[str]:
    """Flags read from the residuals of the least-squares fit."""
    flags = []
    spread, noise = float(np.sqrt(np.mean(residual**2))), difference_noise(y)
    if noise > 0 and spread / noise > 1.8:
        flags.append("misfit")
    if spread > 0 and float(residual[1:] @ residual[:-1]) / float(residual @ residual) > 0.5:
        flags.append("autocorrelated")
    if outliers(residual).any():
        flags.append("outliers")
    return flags


def outliers(residual: Array) -> Array:
    """Which residuals are beyond 4.5 robust standard deviations: [n] booleans."""
    scale = median(np.abs(residual)) / 0.6745
    return np.abs(residual) > max(4.5 * scale, 1e-9)


def mean_phi(surface: Surface) -> float:
    """Weighted mean of the noise correlation."""
    return float(surface.weight @ PHI)
