"""Many curves on the same compute at once: bootstrap, validation, simulation. Point estimates only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalerl_mini.scaling.grid import mid_limits
from scalerl_mini.scaling.laws import SIGMOID, Law
from scalerl_mini.scaling.normal import Array, Box
from scalerl_mini.scaling.polish import LOG_B_LIMITS, Problem, polish


@dataclass(frozen=True)
class BatchFit:
    """Least-squares parameters of M curves, each [M]."""

    A: Array
    B: Array
    C_mid: Array
    R0: Array
    sse: Array


def fit_batch(
    compute: Array,
    scores: Array,
    r0: float | None = None,
    law: Law = SIGMOID,
    a_max: float = 1.0,
    start: tuple[float, float] | None = None,
    steps: int = 12,
) -> BatchFit:
    """Least squares of scores[M, n] at ascending compute[n] > 0, bounded as `fit` is.

    `r0` fixes R_0 (None fits it). `start` = (B, C_mid) near all of them skips the grid (a bootstrap's warm start).
    """
    x, y = np.log(np.asarray(compute, float)), np.atleast_2d(np.asarray(scores, float))
    shift = float(y.mean()) if r0 is None else float(r0)
    box = Box(-shift, a_max - shift, shift)
    kappa = 0.0 if r0 is None else 1e8 * len(x)
    problem = Problem(x, y - shift, law, box, mid_limits(x), kappa, 0.0)
    if start is None:
        log_b, mid = _grid_start(problem)
    else:
        log_b, mid = np.full(len(y), np.log(start[0])), np.full(len(y), np.log(start[1]))
    best = polish(problem, log_b, mid, steps=steps, tolerance=1e-9)
    return BatchFit(best.r0 + best.d + shift, np.exp(best.log_b), np.exp(best.mid), best.r0 + shift, best.sse)


def _grid_start(problem: Problem, rows: int = 12, columns: int = 20) -> tuple[Array, Array]:
    """The best point of a coarse grid for every curve: its sums of squares are one matrix product."""
    log_b = np.repeat(np.linspace(*LOG_B_LIMITS, rows), columns)
    mid = np.tile(np.linspace(*problem.mid_limits, columns), rows)
    rise = problem.law.rise(np.exp(log_b)[:, None] * (problem.x - mid[:, None]))
    if problem.kappa:
        column = rise / np.linalg.norm(rise, axis=1, keepdims=True)
        captured = np.maximum(problem.y @ column.T, 0.0) ** 2
    else:
        centred = rise - rise.mean(1, keepdims=True)
        column = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        captured = np.maximum((problem.y - problem.y.mean(1, keepdims=True)) @ column.T, 0.0) ** 2
    slope = np.linalg.norm(rise if problem.kappa else centred, axis=1)
    steep = np.sqrt(captured) / np.maximum(slope, 1e-12)  # D of each cell: the cap A <= A_max rules some out
    top = steep + (0.0 if problem.kappa else problem.y.mean(1, keepdims=True) - steep * rise.mean(1))
    best = np.argmax(np.where(top <= problem.box.high, captured, 0.9 * captured), axis=1)
    return log_b[best], mid[best]
