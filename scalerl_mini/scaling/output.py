"""A fit as strict JSON: the keys of the interface, plain numbers, null instead of NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from scalerl_mini.scaling.forecast import FAR, Forecast, forecast
from scalerl_mini.scaling.result import Fit
from scalerl_mini.scaling.sensitivity import all_flags

FAR_FLAG = "far_forecast"


def as_dict(fit: Fit, forecasts: Sequence[Forecast] | None = None, robust: bool = True) -> dict[str, object]:
    """The JSON object of a fit. Compute is in the input's unit, scores are fractions."""
    rows = forecast(fit, robust=robust) if forecasts is None else forecasts
    far = [FAR_FLAG] if any(row.compute > FAR * fit.last for row in rows) else []
    has_robust = robust and fit.surface is not None
    return {
        "status": fit.status,
        "verdict": fit.verdict,
        "A": fit.A,
        "B": fit.B,
        "C_mid": fit.C_mid,
        "R0": fit.R0,
        "intervals": fit.intervals,
        "form_robust": {"A": fit.robust_ceiling() if has_robust else None},
        "forecast": [_forecast(row) for row in rows],
        "flags": [*(all_flags(fit) if robust else fit.flags), *far, "single_run"],
        "n": len(fit.curve),
        "n_used": fit.n_used,
        "x": fit.curve.x,
        "y": fit.curve.y,
        "cutoff": fit.window.low,
        "level": fit.level,
        "name": fit.curve.name,
        "reason": fit.reason,
        "method": fit.method,
        "r0_mode": fit.r0_mode,
        "sigma": fit.sigma,
        "phi": fit.phi,
        "notes": list(fit.curve.notes),
        "downstream": asdict(fit.curve.downstream) if fit.curve.downstream else None,
    }


def _forecast(row: Forecast) -> dict[str, object]:
    return {
        "compute": row.compute,
        "value": row.value,
        "interval": row.interval,
        "gain": row.gain,
        "gain_value": row.gain_value,
        "per_compute": row.per_compute,
        "form_robust": row.robust,
        "prob_worth": row.prob_worth,
        "decision": row.decision,
    }


def plain(value: object) -> object:
    """The same with every non-finite number null and numpy scalars made Python's."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    number = float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else None


def to_json(value: object) -> str:
    """Strict JSON text."""
    return json.dumps(plain(value), allow_nan=False, indent=2)
