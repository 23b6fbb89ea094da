"""`method="paper-grid"` and `law="power"` as a `Fit`: points only, no interval, so every verdict is `unidentified`.

They are there to replicate the paper's numbers and to show the power law's trap, on the same window and in the same output.
"""

from __future__ import annotations

from dataclasses import replace

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.paper_grid import PAPER_A, PAPER_C_MID, paper_grid
from scalerl_mini.scaling.power import fit_power
from scalerl_mini.scaling.result import Fit, blank_fit
from scalerl_mini.scaling.window import Window

NO_INTERVAL = "gives points without intervals: nothing here says how far to trust them"


def fit_paper_grid(
    curve: Curve,
    window: Window,
    r0: float | str = "auto",
    a_grid: tuple[float, ...] = PAPER_A,
    c_mid_grid: tuple[float, ...] = PAPER_C_MID,
) -> Fit:
    """The paper's procedure. R_0 must be known: measured at compute 0, or given; raises UserError otherwise."""
    value = curve.r0 if isinstance(r0, str) else r0
    if value is None or r0 == "free":
        raise UserError(
            f"{curve.name or 'curve'}: the paper's grid does not fit R_0; measure it at compute 0 or give --r0 X"
        )
    if not 0.0 <= float(value) < 1.0:
        raise UserError(f"r0 {float(value):g} is not a pass rate: give a fraction in 0..1")
    blank = blank_fit(curve, window)
    if blank.n_used < 2:
        return replace(blank, status="too_few_points", reason=f"{blank.n_used} points in the window")
    best = paper_grid(blank.used, float(value), a_grid, c_mid_grid)

    def predict(compute: float) -> float:
        return best.R0 + (best.A - best.R0) / (1.0 + (best.C_mid / compute) ** best.B)

    return replace(
        blank, A=best.A, B=best.B, C_mid=best.C_mid, R0=best.R0, r0_mode="fixed", predict=predict,
        method="paper-grid", reason=f"the paper's grid {NO_INTERVAL}",
    )  # fmt: skip


def fit_power_law(curve: Curve, window: Window, a_max: float = 1.0) -> Fit:
    """A - D C^-B: `B` is its exponent, `C_mid` and `R0` do not exist."""
    blank = blank_fit(curve, window)
    if blank.n_used < 4:
        return replace(blank, status="too_few_points", reason=f"{blank.n_used} points in the window, 4 are needed")
    best = fit_power(blank.used, a_max)
    reason = f"the power law {NO_INTERVAL}; on a run that still bends it runs to the cap A = {a_max:g}"
    return replace(
        blank, A=best.A, B=best.B, predict=lambda compute: float(best.value(compute)), method="power", reason=reason
    )
