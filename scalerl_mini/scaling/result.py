"""`Fit`: what a fit found, and everything that can be asked of it.

Every answer about a compute that was not measured comes with an interval, read from the same profile surface as the
parameters' own (see `confidence`); a ceiling that the data do not determine has no value here, only an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.confidence import Distribution, distribution, mixture
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.held import CEILING, Quantity
from scalerl_mini.scaling.laws import LAWS, SIGMOID
from scalerl_mini.scaling.surface import Start, Surface, explore
from scalerl_mini.scaling.window import Window

Interval = tuple[float, float]

LEAST_HALF_WIDTH = 0.01  # an interval for A is never printed narrower: seed-to-seed spread alone is larger
# Over several laws the weights are the restricted likelihoods to the power TEMPER and each tail is TAIL_SHARE of nominal:
# half a run tells the laws apart badly, so the likelihoods are over-confident. Calibrated so that 90 % holds under each law.
TEMPER, TAIL_SHARE = 0.7, 0.9


@dataclass(frozen=True)
class Fit:
    """A fitted curve. `A`, `B`, `C_mid`, `R0` are least-squares values, null where they mean nothing (see `verdict`)."""

    status: str  # ok | too_few_points | no_rise | collapse
    verdict: str  # identified | weak | poor | unidentified
    A: float | None
    B: float | None
    C_mid: float | None
    R0: float | None
    intervals: dict[str, Interval | None]
    flags: tuple[str, ...]
    level: float
    window: Window
    curve: Curve = field(repr=False)
    used: Curve = field(repr=False)
    r0_mode: str = "free"
    sigma: float | None = None
    phi: float | None = None
    reason: str = ""
    a_max: float = 1.0
    surface: Surface | None = field(default=None, repr=False)
    start: Start = field(default=Start(), repr=False)
    ceiling: Distribution | None = field(default=None, repr=False)
    method: str = "default"
    predict: Callable[[float], float] | None = field(default=None, repr=False)  # of a fit without a surface

    @property
    def n_used(self) -> int:
        """Number of points in the fit."""
        return len(self.used)

    @cached_property
    def forms(self) -> dict[str, Surface]:
        """Surfaces of all saturating laws on the same points (the sigmoid's is the fit's own)."""
        if self.surface is None:
            return {}
        problem = self.surface.problem
        x, y, box = problem.x, problem.y[0], problem.box
        rivals = {name: explore(x, y, law, box, self.start) for name, law in LAWS.items() if law is not SIGMOID}
        return {SIGMOID.name: self.surface, **rivals}

    @cached_property
    def _known(self) -> dict[tuple[Quantity, bool], Distribution]:
        """What has been asked before; a forecast asks for the same gain twice."""
        return {} if self.ceiling is None else {(CEILING, False): self.ceiling}

    def distribution(self, quantity: Quantity, robust: bool = False) -> Distribution:
        """Confidence distribution of a quantity under the sigmoid, or over all saturating laws."""
        if self.surface is None:
            raise UserError(f"{self.curve.name or 'curve'}: {self.status}, so there is no fit to ask: {self.reason}")
        if (quantity, robust) not in self._known:
            found = self._over_laws(quantity) if robust else distribution(self.surface, quantity)
            self._known[quantity, robust] = found
        return self._known[quantity, robust]

    def _over_laws(self, quantity: Quantity) -> Distribution:
        surfaces = list(self.forms.values())
        evidence = np.array([np.logaddexp.reduce(s.evidence) for s in surfaces])
        weights = np.exp(TEMPER * (evidence - evidence.max()))
        return mixture([distribution(s, quantity) for s in surfaces], weights)

    def interval(self, quantity: Quantity, robust: bool = False) -> Interval:
        """Interval of a quantity at the fit's level; over all saturating laws its tails are shortened (TAIL_SHARE)."""
        level = 1.0 - TAIL_SHARE * (1.0 - self.level) if robust else self.level
        return self.distribution(quantity, robust).interval(level)

    @property
    def asymptote(self) -> float:
        """The least-squares ceiling, also where it is not identified and `A` is therefore null."""
        if self.surface is None:
            raise UserError(f"{self.curve.name or 'curve'}: {self.status}, so there is no ceiling: {self.reason}")
        best = self.surface.exact
        return float(best.r0[0] + best.d[0] + self.surface.problem.box.shift)

    def robust_ceiling(self) -> Interval:
        """The ceiling's interval over all saturating laws, at least LEAST_HALF_WIDTH on each side like `intervals["A"]`."""
        low, high = around(self.interval(CEILING, robust=True), self.asymptote, LEAST_HALF_WIDTH)
        return max(low, 0.0), min(high, self.a_max)

    def value(self, compute: float) -> float:
        """R(compute) of the fitted curve, as a fraction."""
        if self.predict is not None:
            return float(self.predict(compute))
        if self.surface is None:
            raise UserError(f"{self.curve.name or 'curve'}: {self.status}, so there is no curve to read: {self.reason}")
        best = self.surface.exact
        rise = SIGMOID.rise(np.exp(best.log_b[0]) * (log_of(compute) - best.mid[0]))
        return float(best.r0[0] + best.d[0] * rise + self.surface.problem.box.shift)

    def at(self, compute: float, robust: bool = False) -> tuple[float, Interval]:
        """R(compute) and its interval: of the mean curve, without the noise of the evaluation that would measure it."""
        value = self.value(compute)
        return value, around(self.interval(Quantity(log_of(compute)), robust), value)

    def gain(self, compute: float, base: float | None = None, robust: bool = False) -> tuple[float, Interval]:
        """R(compute) - R(base) and its interval; `base` is the last fitted compute when not given."""
        base = self.last if base is None else base
        value = self.value(compute) - self.value(base)
        quantity = Quantity(log_of(compute), log_of(base))
        return value, around(self.interval(quantity, robust), value)

    def prob_gain(self, compute: float, delta: float, base: float | None = None, robust: bool = False) -> float:
        """P(R(compute) - R(base) > delta); `base` is the last fitted compute when not given."""
        base = self.last if base is None else base
        return self.distribution(Quantity(log_of(compute), log_of(base)), robust).above(delta)

    def compute_for(self, score: float, robust: bool = False) -> tuple[float | None, Interval]:
        """Compute at which R reaches `score`, and its interval (up to 1000 times the last compute; inf beyond).

        The value is None when the fitted curve never reaches it.
        """
        computes = np.geomspace(0.1 * self.used.compute[0], 1000.0 * self.last, 41)
        reached = np.array([self.distribution(Quantity(log_of(c)), robust).above(score) for c in computes])
        reached = np.maximum.accumulate(reached)
        tail = 0.5 * (1.0 - self.level)
        low, high = (_first(computes, reached, p) for p in (tail, 1.0 - tail))
        return self._inverse(score), (low, high)

    def _inverse(self, score: float) -> float | None:
        assert self.surface is not None
        best = self.surface.exact
        share = (score - best.r0[0] - self.surface.problem.box.shift) / max(float(best.d[0]), 1e-12)
        if not 0.0 < share < 1.0:
            return None
        return float(np.exp(best.mid[0] + np.log(share / (1.0 - share)) / np.exp(best.log_b[0])))

    @property
    def last(self) -> float:
        """Largest compute in the fit."""
        return float(self.used.compute[-1])

    def to_dict(self) -> dict[str, object]:
        """The JSON object of the fit, with a forecast at twice the last compute (see `output`)."""
        from scalerl_mini.scaling.output import as_dict

        return as_dict(self)

    def to_json(self) -> str:
        """The same as strict JSON text: null, never NaN."""
        from scalerl_mini.scaling.output import to_json

        return to_json(self.to_dict())

    def report(self) -> str:
        """Plain text, see `report.report`."""
        from scalerl_mini.scaling.report import report

        return report(self)

    def plot(self, path: str | Path) -> Path:
        """Draw the fit into a PNG or SVG file."""
        from scalerl_mini.scaling.plots import plot_fit

        return plot_fit(self, path)


def _first(computes: np.ndarray, p: np.ndarray, level: float) -> float:
    """The compute at which p (ascending) reaches the level, by interpolation in log compute; inf if it never does."""
    if p[-1] < level:
        return float("inf")
    i = int(np.argmax(p >= level))
    if i == 0:
        return float(computes[0])
    share = (level - p[i - 1]) / max(p[i] - p[i - 1], 1e-12)
    return float(np.exp(np.log(computes[i - 1]) + share * np.log(computes[i] / computes[i - 1])))


def log_of(compute: float) -> float:
    """Log compute. Raises UserError when it is not positive and finite."""
    if not 0 < compute < np.inf:
        raise UserError(f"compute {compute:g} is not positive and finite: a forecast needs such a compute")
    return float(np.log(compute))


def around(interval: Interval, value: float, half: float = 0.0) -> Interval:
    """The interval, widened where needed to hold the point estimate (and `half` on both sides of it)."""
    return min(interval[0], value - half), max(interval[1], value + half)


def blank_fit(curve: Curve, frame: Window, level: float = 0.9, a_max: float = 1.0) -> Fit:
    """A fit of the points in the window that knows nothing yet."""
    used = frame.of(curve)
    return Fit(
        "ok", "unidentified", None, None, None, None, _no_intervals(), (), level, frame, curve, used, a_max=a_max
    )


def _no_intervals() -> dict[str, Interval | None]:
    return {"A": None, "B": None, "C_mid": None}
