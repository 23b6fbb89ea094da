"""B at a common ceiling: the paper's way to compare efficiency once two ceilings agree.

B is only comparable between curves that share A (and R_0's scale), because A and B trade off along one curve. So A is held
at the common value, B is profiled, and its confidence distribution is read as all others are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from scalerl_mini.scaling.confidence import LIGHT, TAIL, Distribution
from scalerl_mini.scaling.held import CEILING, HeldProblem, least_held
from scalerl_mini.scaling.normal import Array
from scalerl_mini.scaling.polish import LOG_B_LIMITS
from scalerl_mini.scaling.result import Fit
from scalerl_mini.scaling.surface import PHI, WHITE, Surface

POINTS = 33


@dataclass(frozen=True)
class AtCeiling:
    """The sigmoid refitted with A held: B and its distribution, C_mid, R_0."""

    A: float
    B: float
    C_mid: float
    R0: float
    distribution: Distribution


def at_ceiling(fit: Fit, a: float) -> AtCeiling:
    """Refit with A held at `a`, a fraction."""
    surface = fit.surface
    assert surface is not None
    value = a - surface.problem.box.shift
    log_b = np.linspace(*LOG_B_LIMITS, POINTS)
    for _ in range(2):  # the second time on the part that matters
        sse, mid = _profile(surface, value, log_b)
        least = sse.min(1)
        excess = (sse - least[:, None]) / _variance(surface, least)[:, None]
        near = np.flatnonzero((excess < 1.5 * stdtrit(surface.t_dof + 1, TAIL) ** 2).any(0))
        low, high = log_b[max(near[0] - 1, 0)], log_b[min(near[-1] + 1, POINTS - 1)]
        used, log_b = log_b, np.linspace(low, high, POINTS)
    white = int(np.flatnonzero(_heavy(surface) == WHITE)[0]) if WHITE in _heavy(surface) else int(np.argmin(least))
    best = int(np.argmin(sse[white]))
    b, c_mid = float(np.exp(used[best])), float(np.exp(mid[white, best]))
    r0 = _r0(surface, value, used[best], mid[white, best])
    return AtCeiling(a, b, c_mid, r0 + surface.problem.box.shift, _distribution(surface, used, sse, least))


def _heavy(surface: Surface) -> Array:
    return np.flatnonzero(surface.weight > LIGHT)


def _profile(surface: Surface, value: float, log_b: Array) -> tuple[Array, Array]:
    """Least SSE and its log C_mid for every heavy phi and log B, A held: [F, POINTS] each."""
    heavy = _heavy(surface)
    many, start = len(heavy) * len(log_b), np.interp(log_b, surface.ridge.log_b, surface.ridge.mids.mean(1))
    phi, kappa = np.repeat(PHI[heavy], len(log_b)), np.repeat(surface.kappa[heavy], len(log_b))
    problem = HeldProblem(surface.problem, CEILING, phi, kappa, np.full(many, value))
    sse, _, mid = least_held(problem, np.tile(log_b, len(heavy)), np.tile(start, len(heavy)), steps=40, hold_b=True)
    return sse.reshape(len(heavy), -1), mid.reshape(len(heavy), -1)


def _distribution(surface: Surface, log_b: Array, sse: Array, least: Array) -> Distribution:
    centre = log_b[np.argmin(sse, axis=1)]
    excess = (sse - least[:, None]) / _variance(surface, least)[:, None]
    root = np.sign(log_b - centre[:, None]) * np.sqrt(np.maximum(excess, 0.0))
    weight = surface.weight[_heavy(surface)]
    cdf = weight @ stdtr(surface.t_dof + 1, np.maximum.accumulate(root, axis=1)) / weight.sum()
    return Distribution(np.exp(log_b), cdf, float(np.exp(LOG_B_LIMITS[0])), float(np.exp(LOG_B_LIMITS[1])))


def _variance(surface: Surface, least: Array) -> Array:
    """Noise variance for every heavy phi; with A held there is one more degree of freedom."""
    return (least + surface.extra[_heavy(surface)]) / (surface.t_dof + 1)


def _r0(surface: Surface, value: float, log_b: float, mid: float) -> float:
    """R_0 by least squares once A, B and C_mid are given: y = A - (A - R_0)(1 - rise)."""
    problem = surface.problem
    left = 1.0 - problem.law.rise(np.exp(log_b) * (problem.x - mid))
    return value - float(left @ (value - problem.y[0]) / max(left @ left, 1e-300))
