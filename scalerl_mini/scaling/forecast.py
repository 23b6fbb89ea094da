"""Forecast and decision: where the curve is going, what more compute buys, and whether that is worth it.

GO and NO are only said at 90 % confidence that the gain is, or is not, above what the user calls worth it, under the
sigmoid and over the other saturating laws alike; anything else is UNDECIDED, which is an answer too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.result import Fit, Interval, log_of

SURE = 0.9
FAR = 10.0  # targets beyond this multiple of the last compute are flagged


@dataclass(frozen=True)
class Forecast:
    """R at one compute: value and interval, gain over the last fitted compute, and the gain per unit of compute."""

    compute: float
    value: float
    interval: Interval | None
    gain: Interval | None
    gain_value: float
    per_compute: float
    robust: Interval | None = None
    prob_worth: float | None = None
    prob_worth_robust: float | None = None

    @property
    def decision(self) -> str | None:
        """GO, NO or UNDECIDED for the gain named as worth it; None when none was named."""
        if self.prob_worth is None or self.prob_worth_robust is None:
            return None
        if min(self.prob_worth, self.prob_worth_robust) >= SURE:
            return "GO"
        return "NO" if max(self.prob_worth, self.prob_worth_robust) <= 1 - SURE else "UNDECIDED"


def forecast(
    fit: Fit, computes: Sequence[float] = (), worth: float | None = None, robust: bool = True
) -> list[Forecast]:
    """Forecasts at the given computes (twice the last fitted compute when none is given); empty when there is no fit.

    Raises UserError for a `worth` that is no gain in pass rate, and for a compute that is not positive and finite.
    """
    if worth is not None and not 0.0 < worth < 1.0:
        raise UserError(f"worth {worth:g} is no gain in pass rate: give a fraction such as 0.02")
    for compute in computes:
        log_of(compute)
    if fit.surface is None and fit.predict is None:
        return []
    return [_one(fit, compute, worth, robust) for compute in (computes or (2.0 * fit.last,))]


def _one(fit: Fit, compute: float, worth: float | None, robust: bool) -> Forecast:
    if fit.surface is None:
        return Forecast(
            compute, fit.value(compute), None, None, fit.value(compute) - fit.value(fit.last), _slope(fit, compute)
        )
    value, interval = fit.at(compute)
    gain_value, gain = fit.gain(compute)
    return Forecast(
        compute, value, interval, gain, gain_value, _slope(fit, compute),
        robust=fit.at(compute, robust=True)[1] if robust else None,
        prob_worth=None if worth is None else fit.prob_gain(compute, worth),
        prob_worth_robust=None if worth is None else fit.prob_gain(compute, worth, robust=robust),
    )  # fmt: skip


def _slope(fit: Fit, compute: float) -> float:
    """dR/dC: the marginal gain per unit of compute."""
    step = 1e-3 * compute
    return (fit.value(compute + step) - fit.value(compute - step)) / (2.0 * step)


def gain_below(fit: Fit, compute: float, threshold: float, sure: float = SURE) -> bool:
    """Whether R(compute) - R(now) is below `threshold` with probability `sure`, also if other saturating laws are allowed.

    What `stop_when_gain_below` asks after each evaluation. False while there is no fit: not knowing is no reason to stop.
    """
    if fit.surface is None or compute <= fit.last:
        return False
    if fit.prob_gain(compute, threshold) > 1.0 - sure:
        return False
    return fit.prob_gain(compute, threshold, robust=True) <= 1.0 - sure


def one_line(fit: Fit, multiple: float = 2.0) -> str:
    """The fit in one line, for a training log: `A 0.76 [0.72, 0.81] weak, at 2x compute R 0.74 [0.73, 0.75]`."""
    if fit.surface is None:
        return f"fit: {fit.status} ({fit.reason})"
    low, high = fit.intervals["A"] or (0.0, fit.a_max)
    value, (r_low, r_high) = fit.at(multiple * fit.last)
    ceiling = "A not identified" if fit.A is None else f"A {fit.A:.3f}"
    verdict = "" if fit.A is None else f" {fit.verdict}"
    return f"{ceiling} [{low:.3f}, {high:.3f}]{verdict}, at {multiple:g}x compute R {value:.3f} [{r_low:.3f}, {r_high:.3f}]"
