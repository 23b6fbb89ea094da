"""Which points of a curve enter the fit: the early cutoff and an optional end.

The first part of a run rises off the law (format learning), and left in it pushes A up. A fixed cut of 10 % of the largest
compute beat every automatic rule that was tried (docs/fitting.md); the paper's own cut is a number of GPU-hours.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import Curve

DEFAULT_CUTOFF = 0.1
CUT_TABLE = (0.0, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Window:
    """Points with low <= compute <= high, in the curve's unit."""

    low: float
    high: float

    def of(self, curve: Curve) -> Curve:
        """The part of the curve inside the window."""
        return curve.between(self.low, self.high)


def window(
    curve: Curve,
    cutoff: float = DEFAULT_CUTOFF,
    min_compute: float | None = None,
    max_compute: float | None = None,
) -> Window:
    """The window of a fit: `cutoff` is a share of the largest compute kept, unless `min_compute` gives the cut itself.

    Raises UserError when no compute can lie between `min_compute` and `max_compute`.
    """
    high = float("inf") if max_compute is None else float(max_compute)
    if not max(min_compute or 0.0, 0.0) < high:
        raise UserError(f"nothing lies between min_compute {min_compute or 0:g} and max_compute {high:g}")
    inside = curve.compute[curve.compute <= high]
    last = float(inside[-1]) if len(inside) else 0.0
    low = cutoff * last * (1.0 - 1e-12) if min_compute is None else float(min_compute)
    return Window(low, high)
