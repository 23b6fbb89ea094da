"""How the ceiling moves with the early cutoff: the table that replaces picking a cutoff silently."""

from __future__ import annotations

import numpy as np

from scalerl_mini.scaling.checks import FEWEST
from scalerl_mini.scaling.fit import Fit
from scalerl_mini.scaling.grid import coarse_rows, mid_limits
from scalerl_mini.scaling.laws import SIGMOID
from scalerl_mini.scaling.normal import Box
from scalerl_mini.scaling.polish import Problem, polish
from scalerl_mini.scaling.window import CUT_TABLE, window


def cut_table(fit: Fit, shares: tuple[float, ...] = CUT_TABLE) -> list[tuple[float, float | None]]:
    """Least-squares A for each early cutoff (share of the largest compute); None where too few points are left."""
    return [(share, _ceiling(fit, share)) for share in shares]


def _ceiling(fit: Fit, share: float) -> float | None:
    part = window(fit.curve, share, max_compute=fit.window.high).of(fit.curve)
    if len(part) < FEWEST:
        return None
    x, shift = np.log(part.compute), float(part.score.mean())
    box = Box(-shift, fit.a_max - shift, shift)
    problem = Problem(x, part.score[None] - shift, SIGMOID, box, mid_limits(x))
    rows = coarse_rows(problem)
    top = [int(np.argmin(rows.sse))]
    best = polish(problem, rows.log_b[top], rows.mid[top])
    return float(best.r0[0] + best.d[0] + shift)


def cut_sensitive(fit: Fit) -> bool:
    """Whether A moves by more than half its interval's width between cuts of 5 % and 20 %."""
    interval = fit.intervals["A"]
    a, b = (_ceiling(fit, share) for share in (0.05, 0.2))
    return interval is not None and a is not None and b is not None and abs(a - b) > 0.5 * (interval[1] - interval[0])
