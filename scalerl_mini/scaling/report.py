"""The plain-text report of a fit, made to be pasted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scalerl_mini.scaling.forecast import FAR, Forecast, forecast
from scalerl_mini.scaling.result import Fit
from scalerl_mini.scaling.sensitivity import all_flags, cut_table, form_table


def report(
    fit: Fit, forecasts: Sequence[Forecast] | None = None, worth: float | None = None, robust: bool = True
) -> str:
    """Several lines: data, parameters, ceiling, cut table, forecast, decision, flags."""
    lines = [_head(fit), *(f"{'':14}{note}" for note in fit.curve.notes)]
    if fit.curve.downstream:
        lines.append(f"{'downstream':<14}{fit.curve.downstream}")
    if fit.status != "ok":
        return "\n".join([*lines, f"{'no fit':<14}{fit.status}: {fit.reason}"])
    rows = forecast(fit, worth=worth, robust=robust) if forecasts is None else forecasts
    if fit.surface is None:
        shown = [_forecast_line(fit, row, i == 0) for i, row in enumerate(rows)]
        lines += [_parameters(fit), *shown]
        if worth is not None:
            lines.append(f"{'decision':<14}UNDECIDED: {fit.method} gives no interval to decide by")
        return "\n".join([*lines, f"{'note':<14}{fit.reason}"])
    lines += [_parameters(fit), *_ceiling(fit, robust), _cuts(fit), *([_forms(fit)] if robust else [])]
    lines += [_forecast_line(fit, row, i == 0) for i, row in enumerate(rows)]
    if worth is not None:
        lines += [_decision(row, worth, i == 0) for i, row in enumerate(rows)]
    flags = all_flags(fit) if robust else list(fit.flags)
    lines.append(f"{'flags':<14}{', '.join([*flags, 'single_run'])}")
    lines.append(
        f"{'':14}single_run: the spread between seeds (about .015 in A in the paper) is in none of these intervals"
    )
    return "\n".join(lines)


def _head(fit: Fit) -> str:
    x = fit.curve.x
    span = f"{fit.used.compute[0]:.4g} to {fit.last:.4g}" if fit.n_used else "no points"
    cut = f"cutoff {fit.window.low:.4g}" if fit.window.low else "no cutoff"
    return f"{'curve':<14}{fit.curve.name or 'curve'}: {fit.n_used} of {len(fit.curve)} points, {x} {span}, {cut}"


def _parameters(fit: Fit) -> str:
    cells = (("A", fit.A, ".4f"), ("B", fit.B, ".2f"), ("C_mid", fit.C_mid, ".4g"), ("R_0", fit.R0, ".3f"),
             ("sigma", fit.sigma, ".4f"), ("phi", fit.phi, ".2f"))  # fmt: skip
    missing = "not identified" if fit.method == "default" else "-"
    shown = [f"{name} = {missing if value is None else format(value, form)}" for name, value, form in cells]
    shown[3] += f" ({fit.r0_mode})" if fit.R0 is not None else ""
    return f"{'sigmoid' if fit.method == 'default' else fit.method:<14}{'  '.join(shown)}"


def _ceiling(fit: Fit, robust: bool) -> list[str]:
    low, high = fit.intervals["A"] or (0.0, fit.a_max)
    percent = f"{100 * fit.level:.0f}%"
    name = "A: not identified" if fit.A is None else f"{fit.verdict}"
    lines = [f"{'ceiling A':<14}{percent} [{low:.3f}, {high:.3f}]  {name}{_why(fit)}"]
    if robust:
        low, high = fit.robust_ceiling()
        lines.append(f"{'':14}{percent} [{low:.3f}, {high:.3f}]  if other saturating laws are allowed")
    return lines


def _why(fit: Fit) -> str:
    assert fit.surface is not None
    ratio = fit.last / float(np.exp(fit.surface.exact.mid[0]))
    if fit.verdict == "identified":
        return f" (the data reach {ratio:.1f} C_mid)"
    return f" (the data reach {ratio:.1f} C_mid; A within .02 needs about 3 to 6)"


def _cuts(fit: Fit) -> str:
    table = cut_table(fit)
    cells = ", ".join(f"{100 * share:.0f}%: {'-' if a is None else format(a, '.3f')}" for share, a in table)
    return f"{'A by cut':<14}{cells}"


def _forms(fit: Fit) -> str:
    cells = ", ".join(f"{name}: {a:.3f} ({delta:+.1f})" for name, a, delta in form_table(fit))
    return f"{'A by law':<14}{cells}  (AICc beside the sigmoid's; not a reason to choose)"


def _forecast_line(fit: Fit, row: Forecast, first: bool) -> str:
    parts = [f"{'forecast' if first else '':<14}at {row.compute:.4g}  R = {row.value:.3f}"]
    if row.interval and row.gain:
        parts[0] += f" [{row.interval[0]:.3f}, {row.interval[1]:.3f}]"
        parts += [f"other laws [{row.robust[0]:.3f}, {row.robust[1]:.3f}]"] if row.robust else []
        parts.append(f"gain [{row.gain[0]:+.3f}, {row.gain[1]:+.3f}]")
    parts.append(f"{row.per_compute:+.2g} per unit")
    if row.compute > FAR * fit.last:
        parts.append(f"far_forecast: {row.compute / fit.last:.0f}x extrapolation")
    return "  ".join(parts)


def _decision(row: Forecast, worth: float, first: bool) -> str:
    return (
        f"{'decision' if first else '':<14}{row.decision}: P(gain to {row.compute:.4g} > {worth:g}) = {row.prob_worth:.2f}, "
        f"{row.prob_worth_robust:.2f} if other laws are allowed"
    )
