"""What the ceiling would be under other choices: early cutoffs and other saturating laws. Shown, never picked from."""

from __future__ import annotations

import numpy as np

from scalerl_mini.scaling.checks import FEWEST
from scalerl_mini.scaling.grid import coarse_rows, mid_limits
from scalerl_mini.scaling.laws import SIGMOID
from scalerl_mini.scaling.normal import Box
from scalerl_mini.scaling.polish import Problem, polish
from scalerl_mini.scaling.power import aicc, fit_power
from scalerl_mini.scaling.result import Fit
from scalerl_mini.scaling.window import CUT_TABLE, window

WORSE_BY = 2.0  # laws whose log evidence is within this of the best one's fit about as well
FORM_SPREAD = 0.05


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
    """Whether a cutoff of 5, 10 or 20 % moves A out of the fit's interval, or by half its width from one to another."""
    interval = fit.intervals["A"]
    found = [a for a in (_ceiling(fit, share) for share in (0.05, 0.1, 0.2)) if a is not None]
    if interval is None or not found:
        return False
    low, high = interval
    return min(found) < low or max(found) > high or abs(found[0] - found[-1]) > 0.5 * (high - low)


def form_table(fit: Fit) -> list[tuple[str, float, float]]:
    """(law, its least-squares A, AICc minus the sigmoid's) for every saturating law and the power law."""
    if fit.surface is None:
        return []
    n, rows = fit.n_used, []
    own = aicc(float(fit.surface.exact.sse[0]), n, 5)
    for name, surface in fit.forms.items():
        best = surface.exact
        a = float(best.r0[0] + best.d[0] + surface.problem.box.shift)
        rows.append((name, a, aicc(float(best.sse[0]), n, 5) - own))
    power = fit_power(fit.used, fit.a_max)
    return [*rows, ("power", power.A, power.aicc() - own)]


def form_sensitive(fit: Fit) -> bool:
    """Whether the laws that fit about as well as the best put A more than .05 apart."""
    evidence = {name: float(np.logaddexp.reduce(s.evidence)) for name, s in fit.forms.items()}
    top = max(evidence.values())
    a = [value for name, value, _ in form_table(fit) if name in evidence and evidence[name] > top - WORSE_BY]
    return max(a) - min(a) > FORM_SPREAD


def all_flags(fit: Fit) -> list[str]:
    """The fit's flags, with those that need further fits."""
    if fit.surface is None:
        return list(fit.flags)
    more = [
        name for name, raised in (("cut_sensitive", cut_sensitive), ("form_sensitive", form_sensitive)) if raised(fit)
    ]
    return [*fit.flags, *more]
