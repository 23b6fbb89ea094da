"""The rival `law="power"`: R(C) = A - D C^-B, 0 < A <= A_max, D > 0 - and why it is a trap.

It is what the sigmoid becomes far beyond C_mid, so it fits the upper part of a run well. On a first half it has no bend to
hold it and runs to the cap: on synthetic sigmoids its A is off by more than .1 nearly always, which is the paper's own
A = 1.0 episode. Linear in (A, D) for a given B, so the fit is a one-dimensional search in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.normal import Array

B_LOW, B_HIGH = 0.01, 8.0


@dataclass(frozen=True)
class PowerFit:
    """A - D C^-B; D in the unit of compute to the power B."""

    A: float
    B: float
    D: float
    sse: float
    n: int

    def value(self, compute: Array | float) -> Array:
        """R at `compute` > 0."""
        return self.A - self.D * np.asarray(compute, float) ** -self.B

    def aicc(self) -> float:
        """Small-sample Akaike criterion (three parameters and the noise)."""
        return aicc(self.sse, self.n, 4)


def aicc(sse: float, n: int, k: int) -> float:
    """n log(SSE / n) + 2 k + the small-sample term; infinite when n is too small for k."""
    if n <= k + 1:
        return float("inf")
    return n * float(np.log(max(sse, 1e-300) / n)) + 2.0 * k + 2.0 * k * (k + 1) / (n - k - 1)


def fit_power(curve: Curve, a_max: float = 1.0) -> PowerFit:
    """Least squares over (A, D, B) on all points of the curve (apply the window first); needs 4 points."""
    if len(curve) < 4:
        raise UserError(f"{curve.name or 'curve'}: {len(curve)} points in the window, the power law needs 4")
    x, y = np.log(curve.compute), curve.score
    x = x - x.mean()  # keeps C^-B near 1; D is scaled back below
    low, high = np.log(B_LOW), np.log(B_HIGH)
    for _ in range(12):
        log_b = np.linspace(low, high, 33)
        a, d, sse = _linear(x, y, np.exp(log_b), a_max)
        best = int(np.argmin(sse))
        low, high = log_b[max(best - 1, 0)], log_b[min(best + 1, 32)]
    b = float(np.exp(log_b[best]))
    scale = float(np.exp(np.clip(b * np.log(curve.compute).mean(), -600.0, 600.0)))
    return PowerFit(float(a[best]), b, float(d[best]) * scale, float(sse[best]), len(y))


def _linear(x: Array, y: Array, b: Array, a_max: float) -> tuple[Array, Array, Array]:
    """(A, D >= 0, SSE) in closed form for each B, with A <= a_max."""
    fall = np.exp(np.clip(-b[:, None] * x, -300.0, 300.0))
    centred = fall - fall.mean(1, keepdims=True)
    size = np.maximum(np.vecdot(centred, centred), 1e-300)
    d = np.maximum(-(centred @ (y - y.mean())) / size, 0.0)
    a = y.mean() + d * fall.mean(1)
    capped = a > a_max
    d = np.where(capped, np.maximum((fall @ (np.full_like(y, a_max) - y)) / np.vecdot(fall, fall), 0.0), d)
    a = np.where(capped, a_max, a)
    residual = y - a[:, None] + d[:, None] * fall
    return a, d, np.vecdot(residual, residual)
