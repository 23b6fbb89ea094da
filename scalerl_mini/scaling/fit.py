"""`fit`: from a curve to the sigmoid law's parameters, their intervals, and everything that can be asked of them.

The point estimate is plain least squares (exact, bounded 0 <= R_0 <= A <= A_max, .2 <= B <= 8); the intervals average over
the noise's correlation (see `surface`). Departures from the paper: R_0 is fitted unless measured, intervals are given, and
a ceiling that the data do not determine is not printed as a number. The paper's own procedure is `paper_grid`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import checks
from scalerl_mini.scaling.confidence import distribution, shape_b, shape_c_mid
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.held import CEILING
from scalerl_mini.scaling.laws import SIGMOID
from scalerl_mini.scaling.normal import Box
from scalerl_mini.scaling.other_methods import fit_paper_grid, fit_power_law
from scalerl_mini.scaling.paper_grid import PAPER_A, PAPER_C_MID
from scalerl_mini.scaling.result import LEAST_HALF_WIDTH, Fit, Interval, around, blank_fit
from scalerl_mini.scaling.surface import Start, Surface, explore, free_least
from scalerl_mini.scaling.window import DEFAULT_CUTOFF, window

MOST = 1000  # more points are averaged in groups: the cost of a fit grows with them, what it learns does not
R0_SD = 0.01  # a measured R_0 is trusted to this at best: the law's own R_0 need not be the start model's pass rate
VERDICTS = ((0.04, "identified"), (0.10, "weak"), (0.20, "poor"))


def fit(
    curve: Curve,
    *,
    cutoff: float = DEFAULT_CUTOFF,
    min_compute: float | None = None,
    max_compute: float | None = None,
    r0: float | str = "auto",
    r0_sd: float | None = None,
    level: float = 0.9,
    a_max: float = 1.0,
    robust: bool | None = None,
    law: str = "sigmoid",
    method: str = "default",
    a_grid: tuple[float, ...] = PAPER_A,
    c_mid_grid: tuple[float, ...] = PAPER_C_MID,
) -> Fit:
    """Fit the sigmoid law (or, on demand, what the paper did, or the power law).

    Parameters
    ----------
    cutoff, min_compute, max_compute: the window; `cutoff` is a share of the largest compute, the others are compute.
    r0: "free" fits R_0; "first" uses the value measured at compute 0 as a soft observation; "auto" does so when there is
        one; a number fixes it.
    r0_sd: standard deviation of the measured R_0 (default: the evaluation's own, at least .01).
    level: of the intervals, in (0, 1).
    a_max: largest ceiling allowed.
    robust: clip outlying residuals; None does so when the `outliers` flag is raised.
    law: "sigmoid", or "power" for the rival A - D C^-B (points only).
    method: "default", or "paper-grid" for the paper's grid over `a_grid` and `c_mid_grid` (points only).

    Raises UserError for impossible options; a curve that cannot be fitted gives a `status`, never an exception.
    """
    if not 0.0 < level < 1.0 or not 0.0 <= cutoff < 1.0:
        raise UserError(f"level {level:g} and cutoff {cutoff:g} must lie between 0 and 1")
    if (law, method) not in (("sigmoid", "default"), ("sigmoid", "paper-grid"), ("power", "default")):
        raise UserError(f"law {law!r} by method {method!r}: choose sigmoid or power, or sigmoid by paper-grid")
    curve = curve.thinned(MOST)
    frame = window(curve, cutoff, min_compute, max_compute)
    if method == "paper-grid":
        return fit_paper_grid(curve, frame, r0, a_grid, c_mid_grid)
    if law == "power":
        return fit_power_law(curve, frame, a_max)
    blank = blank_fit(curve, frame, level, a_max)
    start = _start(curve, r0, r0_sd)
    refused = _refuse(blank)
    return refused or _fit_points(blank, start, robust)


def _start(curve: Curve, r0: float | str, sd: float | None) -> Start:
    if isinstance(r0, str):
        if r0 not in ("auto", "free", "first"):
            raise UserError(f"r0 {r0!r}: give free, first or a number")
        if r0 == "first" and curve.r0 is None:
            raise UserError(
                f"{curve.name or 'curve'}: r0 'first' needs an evaluation at compute 0; use free or a number"
            )
        if r0 == "free" or curve.r0 is None:
            return Start()
        return Start("soft", curve.r0, max(sd or curve.r0_sd or 0.0, R0_SD))
    if not 0.0 <= r0 < 1.0:
        raise UserError(f"r0 {r0:g} is not a pass rate: give a fraction in 0..1")
    return Start("fixed", float(r0))


def _refuse(blank: Fit) -> Fit | None:
    """The status of a curve that cannot be fitted at all."""
    y = blank.used.score
    if len(y) < checks.FEWEST:
        return replace(
            blank, status="too_few_points", reason=f"{len(y)} points in the window, {checks.FEWEST} are needed"
        )
    fall = checks.collapse(y)
    if fall:
        peak = float(blank.used.compute[fall[1]])
        reason = f"falls by {fall[0]:.3f} after its peak at {peak:.4g}; fit up to there with max_compute"
        return replace(blank, status="collapse", reason=reason)
    if np.ptp(y) < 1e-9:
        return replace(blank, status="no_rise", reason="all scores are equal")
    return None


def _fit_points(blank: Fit, start: Start, robust: bool | None) -> Fit:
    x, y = np.log(blank.used.compute), blank.used.score
    surface, start, freed = _surface(x, y, blank.a_max, start)
    if not checks.rises(surface):
        reason = "no rise that noise could not have made (F test against a constant, p > .05)"
        return replace(blank, status="no_rise", reason=reason)
    residual = _residual(surface)
    flags = checks.residual_flags(residual, y)
    if _transient(blank, surface):
        flags.append("early_transient")
    if robust or (robust is None and "outliers" in flags):
        surface = _clipped(surface, residual, start)
    return _summary(blank, surface, start, flags + ["r0_freed"] * freed)


def _surface(x: np.ndarray, y: np.ndarray, a_max: float, start: Start) -> tuple[Surface, Start, bool]:
    """Explore; a soft R_0 that the curve contradicts is set free (a transient raises the law's own R_0)."""
    shift = float(y.mean())
    box = Box(-shift, a_max - shift, shift)
    surface = explore(x, y - shift, SIGMOID, box, start)
    if start.kind != "soft" or _agrees(surface):
        return surface, start, False
    return explore(x, y - shift, SIGMOID, box, Start()), Start(), True


def _agrees(surface: Surface) -> bool:
    """Whether the fit reaches the measured R_0 within what its own uncertainty and the measurement's allow."""
    dof, free = surface.t_dof - 1, free_least(surface.problem)
    t = np.sqrt(np.maximum(surface.least - free, 0.0) * dof / (free + surface.extra))
    return float(surface.weight @ (t < stdtrit(dof, 0.95))) > 0.5


def _residual(surface: Surface) -> np.ndarray:
    best, problem = surface.exact, surface.problem
    rise = problem.law.rise(np.exp(best.log_b[0]) * (problem.x - best.mid[0]))
    return problem.y[0] - best.r0[0] - best.d[0] * rise


def _transient(blank: Fit, surface: Surface) -> bool:
    """Whether an evaluation that the cutoff left out lies far below the law: the rest of a transient may still be inside."""
    early = blank.curve.compute < blank.used.compute[0]
    best, shift = surface.exact, surface.problem.box.shift
    rise = SIGMOID.rise(np.exp(best.log_b[0]) * (np.log(blank.curve.compute[early]) - best.mid[0]))
    below = blank.curve.score[early] - shift - best.r0[0] - best.d[0] * rise
    return bool(len(below) and below.min() < -checks.FAR_BELOW * np.sqrt(best.sse[0] / surface.dof) - 1e-9)


def _clipped(surface: Surface, residual: np.ndarray, start: Start) -> Surface:
    """Refit with outlying scores moved to 2.5 robust standard deviations from the first fit."""
    limit, problem = 2.5 * float(np.median(np.abs(residual))) / 0.6745, surface.problem
    moved = np.where(checks.outliers(residual), np.clip(residual, -limit, limit) - residual, 0.0)
    return explore(problem.x, problem.y[0] + moved, problem.law, problem.box, start)


def _summary(blank: Fit, surface: Surface, start: Start, flags: list[str]) -> Fit:
    best, shift, level = surface.exact, surface.problem.box.shift, blank.level
    a, b, c_mid = float(best.r0[0] + best.d[0] + shift), float(np.exp(best.log_b[0])), float(np.exp(best.mid[0]))
    ceiling = distribution(surface, CEILING)
    interval = around(ceiling.interval(level), a, LEAST_HALF_WIDTH)
    interval = max(interval[0], 0.0), min(interval[1], blank.a_max)
    width = interval[1] - interval[0]
    verdict = next((name for limit, name in VERDICTS if width < limit), "unidentified")
    if interval[1] >= blank.a_max - 1e-3:
        verdict = "unidentified"
    known = verdict != "unidentified"
    intervals: dict[str, Interval | None] = {
        "A": interval,
        "B": around(shape_b(surface).interval(level), b),
        "C_mid": around(shape_c_mid(surface).interval(level), c_mid),
    }
    n = blank.n_used
    flags = [*_window_flags(blank, b, c_mid, interval), *flags]
    return replace(
        blank, verdict=verdict, A=a if known else None, B=b if known else None, C_mid=c_mid if known else None,
        R0=float(best.r0[0] + shift), intervals=intervals, flags=tuple(flags), r0_mode=start.kind, surface=surface,
        start=start, ceiling=ceiling, sigma=float(np.sqrt(best.sse[0] / surface.dof)), phi=checks.mean_phi(surface),
        reason="" if n >= 10 else "fewer than 10 points",
    )  # fmt: skip


def _window_flags(blank: Fit, b: float, c_mid: float, interval: Interval) -> list[str]:
    flags = []
    if blank.used.compute[-1] < c_mid:
        flags.append("below_c_mid")
    if interval[1] >= blank.a_max - 1e-3:
        flags.append("unbounded_above")
    if b > 6.0:
        flags.append("step_like")
    if blank.n_used < 10:
        flags.append("few_points")
    if checks.difference_noise(blank.used.score) > checks.SMALL_EVAL:
        flags.append("small_eval")
    return flags
