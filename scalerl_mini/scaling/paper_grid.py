"""`method="paper-grid"`: the paper's own fit, step by step, for replication - not for use.

For every pair of A in {.450, .455, ... .800} and C_mid in 100 evenly spaced values, B alone is fitted by unweighted least
squares from scipy's default start (B = 1); the pair with the least sum of squares wins. R_0 is given, not fitted. The
result is the same cell that a literal loop over `scipy.optimize.curve_fit` finds, in one vectorised Levenberg-Marquardt
instead of 7100 calls. The published A therefore carries +-.0025 and C_mid half a grid step of rounding, and there is no
interval at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.normal import Array

PAPER_A = tuple(np.round(np.arange(0.45, 0.8001, 0.005), 3))
PAPER_C_MID = tuple(
    np.linspace(100.0, 40000.0, 100)
)  # as printed; Table 1's own values lie on 100..4000 and 4000..16000
MOST_CELLS = 10_000_000  # pairs times points: half a gigabyte of memory


def a_values(text: str | None) -> tuple[float, ...]:
    """`LO:HI:STEP` as values of A; None is the paper's grid."""
    if text is None:
        return PAPER_A
    low, high, step = _three(text, "--a-grid", "LO:HI:STEP")
    if not (0 < low <= high <= 1 and step >= 1e-4):
        raise UserError(f"--a-grid {text!r}: needs 0 < LO <= HI <= 1 and a STEP of at least 0.0001")
    return tuple(np.round(np.arange(low, high + 0.5 * step, step), 6))


def c_mid_values(text: str | None) -> tuple[float, ...]:
    """`LO:HI:COUNT` as evenly spaced values of C_mid; None is the paper's printed grid."""
    if text is None:
        return PAPER_C_MID
    low, high, count = _three(text, "--c-mid-grid", "LO:HI:COUNT")
    if not (0 < low <= high < np.inf and 1 <= count <= 10000):
        raise UserError(f"--c-mid-grid {text!r}: needs 0 < LO <= HI and a COUNT of 1 to 10000")
    return tuple(np.linspace(low, high, int(count)))


def _three(text: str, option: str, form: str) -> tuple[float, float, float]:
    try:
        low, high, third = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise UserError(f"{option} {text!r}: give {form}") from error
    return low, high, third


@dataclass(frozen=True)
class PaperFit:
    """The winning cell: A and C_mid on the grid, B fitted, the sum of squares; `r0` as given."""

    A: float
    B: float
    C_mid: float
    R0: float
    sse: float
    sse_grid: Array = field(repr=False)  # [len(A grid), len(C_mid grid)]


def paper_grid(
    curve: Curve,
    r0: float,
    a_grid: tuple[float, ...] = PAPER_A,
    c_mid_grid: tuple[float, ...] = PAPER_C_MID,
) -> PaperFit:
    """Fit all points of the curve (apply the window first); raises UserError when there are none."""
    if not len(curve):
        raise UserError(f"{curve.name or 'curve'}: no points in the window, so nothing for the paper's grid to fit")
    if len(a_grid) * len(c_mid_grid) * len(curve) > MOST_CELLS:
        raise UserError(f"{len(a_grid)} values of A by {len(c_mid_grid)} of C_mid are too many for {len(curve)} points")
    a, c_mid = np.meshgrid(np.asarray(a_grid, float), np.asarray(c_mid_grid, float), indexing="ij")
    log_ratio = np.log(curve.compute)[None] - np.log(c_mid.reshape(-1, 1))  # [cells, n]
    rise = a.reshape(-1, 1) - r0
    b, sse = _fit_b(log_ratio, rise, curve.score - r0)
    best = int(np.argmin(sse))
    cell = np.unravel_index(best, a.shape)
    return PaperFit(float(a[cell]), float(b[best]), float(c_mid[cell]), r0, float(sse[best]), sse.reshape(a.shape))


def _fit_b(log_ratio: Array, rise: Array, y: Array, steps: int = 60) -> tuple[Array, Array]:
    """Least squares over B from B = 1 for every cell at once: (B, SSE), each [cells]."""
    b = np.ones(len(rise))
    damping = np.full(len(b), 1e-3)
    residual, slope = _model(log_ratio, rise, y, b)
    sse = np.vecdot(residual, residual)
    busy = np.arange(len(b))
    for _ in range(steps):
        gradient = np.vecdot(slope[busy], residual[busy])
        step = gradient / (np.vecdot(slope[busy], slope[busy]) * (1.0 + damping[busy]) + 1e-30)
        trial = b[busy] + step
        new_residual, new_slope = _model(log_ratio[busy], rise[busy], y, trial)
        new_sse = np.vecdot(new_residual, new_residual)
        better = new_sse <= sse[busy]
        took = busy[better]
        b[took], sse[took] = trial[better], new_sse[better]
        residual[took], slope[took] = new_residual[better], new_slope[better]
        damping[busy] = np.where(better, damping[busy] * 0.2, damping[busy] * 5.0)
        busy = busy[(np.abs(step) > 1e-10 * (1.0 + np.abs(trial))) & (damping[busy] < 1e12)]
        if not busy.size:
            break
    return b, sse


def _model(log_ratio: Array, rise: Array, y: Array, b: Array) -> tuple[Array, Array]:
    """Residuals and the derivative of the model by B: [cells, n] each."""
    share = 1.0 / (1.0 + np.exp(-np.clip(b[:, None] * log_ratio, -500.0, 500.0)))
    return y - rise * share, rise * share * (1.0 - share) * log_ratio
