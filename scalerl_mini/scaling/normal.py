"""Closed form in (R_0, D = A - R_0) for given shapes (B, C_mid), under AR(1) noise of any lag-1 correlation phi.

The law is linear in (R_0, D) once its shape is fixed. The inverse covariance of AR(1) noise is tridiagonal,
    P_phi = I + phi^2 (I - ends) - phi (neighbours),
so every inner product u' P_phi v needs three plain sums and is then a quadratic in phi: all phi and all shapes of a grid
are solved together, without whitening anything. Evaluations count as evenly spaced (index spacing); with 40 % of the
points missing at random that still covers (docs/fitting.md).

A measured R_0 enters as one soft observation of weight kappa (noise variance / variance of the measurement).
Shapes: F values of phi, G grid points, n evaluations. All scores here are relative to `Box.shift`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Box:
    """The feasible triangle r0 >= low, D >= 0, r0 + D <= high (scores after subtraction of `shift`)."""

    low: float
    high: float
    shift: float = 0.0


@dataclass(frozen=True)
class Normal:
    """Normal equations: SSE(r0, D) = yy - 2 (b0 r0 + b1 D) + m00 r0^2 + 2 m01 r0 D + m11 D^2. Arrays [F, G] or [F, 1]."""

    m00: Array
    m01: Array
    m11: Array
    b0: Array
    b1: Array
    yy: Array

    def sse(self, r0: Array, d: Array) -> Array:
        """Weighted sum of squares [F, G] at the given linear parameters (never negative)."""
        fit = r0 * (self.m00 * r0 + 2.0 * (self.m01 * d - self.b0)) + d * (self.m11 * d - 2.0 * self.b1)
        return np.maximum(self.yy + fit, 0.0)


class Whitener:
    """AR(1) whitening for phi[M] (or one phi for all rows): independent innovations of equal variance."""

    def __init__(self, phi: Array | float) -> None:
        phi = np.atleast_1d(phi)
        self._back, self._first = -phi[:, None], np.sqrt(1.0 - phi**2)

    def __call__(self, v: Array) -> Array:
        """v[M, n], or one row v[1, n] for every phi: [M, n]."""
        out = np.empty((max(len(self._first), len(v)), v.shape[1]))
        later = out[:, 1:]
        np.multiply(v[:, :-1], self._back, out=later)
        later += v[:, 1:]
        np.multiply(v[:, 0], self._first, out=out[:, 0])
        return out


def whiten(v: Array, phi: Array | float) -> Array:
    """`Whitener` used once."""
    return Whitener(phi)(v)


def dot(p: Array, q: Array) -> Array:
    """Row-wise inner product of [M, n] arrays: [M]."""
    return np.vecdot(p, q)


def clip(v: Array, low: Array | float, high: Array | float) -> Array:
    """`np.clip` without its wrapper, which costs more than the work on short arrays."""
    return np.minimum(np.maximum(v, low), high)


def ar_product(v: Array, phi: Array) -> Array:
    """P_phi v for a vector v[n] (or several, [..., n]) and phi[F]: [..., F, n]."""
    v = np.asarray(v, float)[..., None, :]
    phi = np.atleast_1d(phi)[:, None]
    square, moved = phi * phi, phi * v
    out = (1.0 + square) * v
    out[..., :: v.shape[-1] - 1] -= square * v[..., :: v.shape[-1] - 1]
    out[..., 1:] -= moved[..., :-1]
    out[..., :-1] -= moved[..., 1:]
    return out


def ar_square(s: Array, phi: Array) -> Array:
    """s' P_phi s for rows s[G, n] and phi[F]: [F, G]."""
    phi = np.atleast_1d(phi)[:, None]
    full = dot(s, s)
    ends = s[:, 0] ** 2 + s[:, -1] ** 2
    lag = dot(s[:, :-1], s[:, 1:])
    return (1.0 + phi**2) * full - phi**2 * ends - 2.0 * phi * lag


def normal_equations(rise: Array, y: Array, phi: Array, kappa: Array | float = 0.0, r0: float = 0.0) -> Normal:
    """Normal equations for shapes `rise`[G, n] and scores y[n] (shifted), with a soft observation r0 of weight kappa[F]."""
    both = ar_product(np.stack([np.ones_like(y), y]), phi).reshape(-1, len(y))
    many = len(both) // 2
    across, own = both @ rise.T, both @ y
    sums, kappa = both[:many].sum(1)[:, None], np.reshape(kappa, (-1, 1))
    return Normal(
        m00=sums + kappa,
        m01=across[:many],
        m11=ar_square(rise, phi),
        b0=own[:many, None] + kappa * r0,
        b1=across[many:],
        yy=own[many:, None] + kappa * r0**2,
    )


def solve(eq: Normal, box: Box) -> tuple[Array, Array, Array]:
    """(r0, D, SSE), each [F, G]: the least sum of squares inside the box, exactly."""
    det = eq.m00 * eq.m11 - eq.m01**2
    good = det > 1e-12 * eq.m00 * eq.m11
    det = np.where(good, det, 1.0)
    r0 = (eq.m11 * eq.b0 - eq.m01 * eq.b1) / det
    d = (eq.m00 * eq.b1 - eq.m01 * eq.b0) / det
    bad = np.flatnonzero(~(good & (r0 >= box.low) & (d >= 0.0) & (r0 + d <= box.high)))
    if len(bad):
        r0.ravel()[bad], d.ravel()[bad] = _on_edges(_select(eq, bad, r0.shape[1]), box)
    return r0, d, eq.sse(r0, d)


def _select(eq: Normal, flat: Array, columns: int) -> Normal:
    """The equations at these places of the raveled [F, G], each [len(flat)]."""
    row = flat // columns
    m00, b0, yy = (v.ravel()[row] for v in (eq.m00, eq.b0, eq.yy))
    m01, m11, b1 = (v.ravel()[flat] for v in (eq.m01, eq.m11, eq.b1))
    return Normal(m00, m01, m11, b0, b1, yy)


def _on_edges(eq: Normal, box: Box) -> tuple[Array, Array]:
    """The best point on the boundary: least SSE on each of the three edges, clipped to the edge."""
    safe = np.maximum(eq.m11, 1e-300)
    flat = clip(eq.b0 / eq.m00, box.low, box.high)
    low_d = clip((eq.b1 - eq.m01 * box.low) / safe, 0.0, box.high - box.low)
    curve = np.maximum(eq.m00 - 2.0 * eq.m01 + eq.m11, 1e-300)
    high_r0 = clip((eq.b0 - eq.b1 - box.high * (eq.m01 - eq.m11)) / curve, box.low, box.high)
    r0 = np.stack([flat, np.full_like(flat, box.low), high_r0])
    d = np.stack([np.zeros_like(flat), low_d, box.high - high_r0])
    best = np.argmin(eq.sse(r0, d), axis=0)
    every = np.arange(best.size)
    return r0[best, every], d[best, every]


def held_precision(eq: Normal, k0: float, k1: Array) -> Array:
    """How fast the SSE of each shape rises when k0 r0 + k1 D is held away from its best value: SSE per square, [F, G]."""
    det = np.maximum(eq.m00 * eq.m11 - eq.m01**2, 1e-11 * eq.m00 * eq.m11 + 1e-300)
    return det / np.maximum(k0**2 * eq.m11 - 2.0 * k0 * k1 * eq.m01 + k1**2 * eq.m00, 1e-300)
