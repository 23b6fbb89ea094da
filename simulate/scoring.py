"""One synthetic curve through the fitter and its rivals: what was estimated, what was true, what the interval held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scalerl_mini.scaling.confidence import greater
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.fit import fit
from scalerl_mini.scaling.held import CEILING
from scalerl_mini.scaling.paper_grid import PAPER_A, paper_grid
from scalerl_mini.scaling.power import fit_power
from scalerl_mini.scaling.result import Fit
from simulate.curves import Simulated, Spec, Truth, simulate_curve

Record = dict[str, object]
MULTIPLES = (2.0, 10.0)


@dataclass(frozen=True)
class Cell:
    """One kind of curve and one way of fitting it."""

    spec: Spec = field(default_factory=Spec)
    r0: str = "free"  # free: R_0 is fitted; measured: one evaluation at compute 0 is used
    cutoff: float = 0.1
    robust: bool = False  # also the interval over other saturating laws
    rivals: bool = False  # also the power law and the paper's grid
    pairs: bool = False  # also a second recipe whose ceiling differs by N(0, .03), and who wins

    def label(self) -> dict[str, object]:
        """What tells this cell from others, for tables."""
        s = self.spec
        ratio = s.ratio if s.ratio is not None else f"{s.ratio_range[0]:g}-{s.ratio_range[1]:g}"
        sigma = s.sigma if s.sigma is not None else "drawn"
        if s.sigma is None and s.sigma_range:
            sigma = f"{s.sigma_range[0]:g}-{s.sigma_range[1]:g}"
        n = s.n if s.n is not None else f"{s.n_range[0]}-{s.n_range[1]}"
        phi = s.phi if s.phi is not None else "drawn"
        return {"law": s.law, "phi": phi, "sigma": sigma, "ratio": ratio, "n": n, "r0": self.r0, "cutoff": self.cutoff,
                "faults": "+".join(s.faults) or "none"}  # fmt: skip


def score(cell: Cell, seed: Sequence[int]) -> Record:
    """Simulate and fit one curve; depends on the cell and the seed alone."""
    run = simulate_curve(cell.spec, np.random.default_rng(list(seed)))
    result = _fit(cell, run.curve)
    record: Record = {
        "status": result.status,
        "verdict": result.verdict,
        "flags": list(result.flags),
        "A_true": run.truth.A,
    }
    if result.surface is not None:
        record |= _estimates(cell, result, run.truth)
    if cell.rivals and result.n_used >= 4:
        record |= _rivals(result, run)
    if cell.pairs:
        record |= _pair(cell, result, run, np.random.default_rng([*seed, 1]))
    return record


def _fit(cell: Cell, curve: Curve) -> Fit:
    return fit(curve, cutoff=cell.cutoff, r0="free" if cell.r0 == "free" else "auto")


def _estimates(cell: Cell, result: Fit, truth: Truth) -> Record:
    low, high = result.interval(CEILING)
    printed = result.intervals["A"] or (low, high)
    record: Record = {
        "A_error": result.asymptote - truth.A,
        "A_covered": low <= truth.A <= high, "A_width": high - low,
        "A_printed_covered": printed[0] <= truth.A <= printed[1], "A_printed_width": printed[1] - printed[0],
        "B_covered": _holds(result, "B", truth.B), "C_mid_covered": _holds(result, "C_mid", truth.C_mid),
    }  # fmt: skip
    if cell.robust:
        low, high = result.interval(CEILING, robust=True)
        record |= {"A_robust_covered": low <= truth.A <= high, "A_robust_width": high - low}
    for multiple in MULTIPLES:
        record |= _forecast(cell, result, truth, multiple)
    return record


def _holds(result: Fit, name: str, value: float) -> bool:
    interval = result.intervals[name]
    return interval is not None and interval[0] <= value <= interval[1]


def _forecast(cell: Cell, result: Fit, truth: Truth, multiple: float) -> Record:
    target = multiple * result.last
    true, key = float(truth.value(target)), f"R{multiple:g}x"
    value, (low, high) = result.at(target)
    gain = result.gain(target)[1]
    true_gain = true - float(truth.value(result.last))
    record: Record = {
        f"{key}_error": value - true, f"{key}_covered": low <= true <= high, f"{key}_width": high - low,
        f"gain{multiple:g}x_covered": gain[0] <= true_gain <= gain[1],
        f"p_gain{multiple:g}x": result.prob_gain(target, 0.02), f"is_gain{multiple:g}x": true_gain > 0.02,
    }  # fmt: skip
    if cell.robust:
        low, high = result.at(target, robust=True)[1]
        record |= {f"{key}_robust_covered": low <= true <= high, f"{key}_robust_width": high - low}
    return record


def _rivals(result: Fit, run: Simulated) -> Record:
    """Errors in A of the power law and of the paper's grid on the same points (its C_mid range scaled to the run)."""
    used = result.used
    record: Record = {"power_A_error": fit_power(used).A - run.truth.A}
    grid = tuple(np.linspace(0.05, 2.0, 100) * used.compute[-1])
    r0 = run.curve.r0 if run.curve.r0 is not None else run.truth.R0
    a_grid = PAPER_A if PAPER_A[0] <= run.truth.A <= PAPER_A[-1] else tuple(np.arange(0.05, 1.0001, 0.005))
    return record | {"paper_A_error": paper_grid(used, r0, a_grid, grid).A - run.truth.A}


def _pair(cell: Cell, result: Fit, run: Simulated, rng: np.random.Generator) -> Record:
    """A second recipe, equal but for its ceiling (and its noise): which one does the fitter call better?"""
    t = run.truth
    other_a = float(np.clip(t.A + rng.normal(0.0, 0.03), t.R0 + 0.03, 0.97))
    spec = Spec(**{**cell.spec.__dict__, "R0": t.R0, "A": other_a, "B": t.B, "C_mid": t.C_mid, "ratio": t.ratio,
                   "sigma": t.sigma, "phi": t.phi, "n": len(run.truth.clean)})  # fmt: skip
    other = _fit(cell, simulate_curve(spec, rng).curve)
    if result.surface is None or other.surface is None:
        return {}
    ceilings = [f.asymptote for f in (result, other)]
    p = greater(result.distribution(CEILING), other.distribution(CEILING))
    return {"pair_true": t.A - other_a, "pair_estimate": ceilings[0] - ceilings[1], "pair_p": p}
