"""The saturating laws, all of one shape: R(C) = R_0 + (A - R_0) * rise(B * (log C - log C_mid)).

The ScaleRL sigmoid R_0 + (A - R_0) / (1 + (C_mid / C)^B) is a logistic in log C (the log-logistic or Hill curve of
dose-response work). Its two rivals here, Gompertz and the stretched exponential, are location-scale families in log C
too, so one search fits all three: only `rise` differs. On half a run they cannot be told apart (docs/fitting.md), which
is why no law is ever selected automatically; the rivals widen the interval instead.

`C_mid` is for every law the location at which u = B * (log C - log C_mid) = 0; only for the sigmoid is that half the rise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
_U_MAX = 60.0  # exp(60) is far from overflow and already 1e26: beyond it every law is 0 or 1 to the last bit


@dataclass(frozen=True)
class Law:
    """A law by its share of the rise, and that share with its derivative, as functions of u = B (log C - log C_mid)."""

    name: str
    rise: Callable[[Array], Array]
    rise_and_slope: Callable[[Array], tuple[Array, Array]]

    def value(self, compute: Array | float, r0: float, a: float, b: float, c_mid: float) -> Array:
        """R(C) at `compute` (same unit as `c_mid`, > 0; 0 gives r0), in the unit of `r0` and `a`."""
        with np.errstate(divide="ignore"):
            u = b * (np.log(np.asarray(compute, float)) - np.log(c_mid))
        return r0 + (a - r0) * self.rise(u)


def _exp(u: Array) -> Array:
    """A new array, worked on in place: temporaries cost more than the exponential."""
    out = np.maximum(u, -_U_MAX, out=np.empty(np.shape(u)))
    return np.exp(np.minimum(out, _U_MAX, out=out), out=out)


def _sigmoid(u: Array) -> Array:
    out = _exp(-u)
    out += 1.0
    return np.divide(1.0, out, out=out)


def _sigmoid_both(u: Array) -> tuple[Array, Array]:
    share = _sigmoid(u)
    return share, share * (1.0 - share)


def _gompertz(u: Array) -> Array:
    return np.exp(-_exp(-u))


def _gompertz_both(u: Array) -> tuple[Array, Array]:
    fall = _exp(-u)
    share = np.exp(-fall)
    return share, fall * share


def _stretched(u: Array) -> Array:
    return -np.expm1(-_exp(u))


def _stretched_both(u: Array) -> tuple[Array, Array]:
    grow = _exp(u)
    return -np.expm1(-grow), grow * np.exp(-grow)


SIGMOID = Law("sigmoid", _sigmoid, _sigmoid_both)
GOMPERTZ = Law("gompertz", _gompertz, _gompertz_both)
STRETCHED = Law("stretched", _stretched, _stretched_both)
LAWS = {law.name: law for law in (SIGMOID, GOMPERTZ, STRETCHED)}
