"""Synthetic runs: a law with known parameters, evaluation noise, training noise, and the faults of real runs.

What is drawn when it is not given follows measured runs: R_0 in .05-.55, A up to .95, B lognormal around 1.8, C_mid of
1k-12k (GPU-hours, say), evaluations evenly spaced, AR(1) training noise about as large as the evaluation noise. Every
curve carries its noiseless self, because with a drift or a second phase "the truth" is no longer one parameter A.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import Curve
from scalerl_mini.scaling.laws import LAWS
from simulate.faults import FAULTS, Draft

PHIS = (0.0, 0.3, 0.5, 0.8)
# What a value may be: (lowest, highest), both allowed.
RANGES = {
    "R0": (0.0, 0.99), "A": (0.0, 1.0), "B": (0.01, 100.0), "C_mid": (1e-100, 1e100), "n": (1, 100_000),
    "ratio": (1e-6, 1e6), "sigma": (0.0, 1.0), "phi": (-0.99, 0.99),
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """What a synthetic run looks like; None draws the value for each run."""

    law: str = "sigmoid"
    R0: float | None = None
    A: float | None = None
    B: float | None = None
    C_mid: float | None = None
    n: int | None = None
    ratio: float | None = None  # last compute / C_mid
    sigma: float | None = None  # marginal sd of an evaluation's noise; None: binomial noise plus training noise
    phi: float | None = None  # lag-1 correlation of the (training) noise
    prompts: int = 1000
    samples: int = 16
    r0_samples: int = 1  # evaluations of the start model averaged into R_0; 0: none
    faults: tuple[str, ...] = ()
    n_range: tuple[int, int] = (15, 75)
    ratio_range: tuple[float, float] = (0.5, 8.0)
    sigma_range: tuple[float, float] | None = None  # draw sigma log-uniformly here instead of the binomial model

    def __post_init__(self) -> None:
        """Refuse a law or a fault that does not exist, and values that no run has."""
        if self.law not in LAWS and self.law != "power":
            raise UserError(f"law {self.law!r}: choose from {', '.join([*LAWS, 'power'])}")
        for fault in self.faults:
            if fault not in FAULTS:
                raise UserError(f"fault {fault!r}: choose from {', '.join(FAULTS)}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UserError(f"{name} {value:g}: a synthetic run needs {low:g} to {high:g}")
        if self.R0 is not None and self.A is not None and self.A <= self.R0:
            raise UserError(f"A {self.A:g} must lie above R0 {self.R0:g}")


@dataclass(frozen=True)
class Truth:
    """The parameters behind a synthetic run, and its noiseless scores at the evaluations."""

    law: str
    R0: float
    A: float
    B: float
    C_mid: float
    ratio: float
    sigma: float
    phi: float
    faults: tuple[str, ...]
    clean: np.ndarray = field(repr=False)

    def value(self, compute: np.ndarray | float) -> np.ndarray:
        """Noiseless pass rate of the law at `compute` (faults not included)."""
        return law_value(self.law, compute, self.R0, self.A, self.B, self.C_mid)


@dataclass(frozen=True)
class Simulated:
    """A run's rows in file order (compute 0 first when R_0 was measured), the same as a Curve, and the truth."""

    compute: np.ndarray
    score: np.ndarray
    curve: Curve
    truth: Truth


def law_value(law: str, compute: np.ndarray | float, r0: float, a: float, b: float, c_mid: float) -> np.ndarray:
    """R(compute) of a saturating law or of the power law A - D C^-B that agrees with the sigmoid far out."""
    if law == "power":
        return np.maximum(a - (a - r0) * (np.asarray(compute, float) / c_mid) ** -b, 0.0)
    return LAWS[law].value(compute, r0, a, b, c_mid)


def simulate_curve(spec: Spec, rng: np.random.Generator, name: str = "synthetic") -> Simulated:
    """One synthetic run."""
    law = _parameters(spec, rng)
    n = int(spec.n if spec.n is not None else rng.integers(spec.n_range[0], spec.n_range[1] + 1))
    ratio = spec.ratio if spec.ratio is not None else _log_uniform(rng, *spec.ratio_range)
    compute = law[3] * ratio * np.arange(1, n + 1) / n
    clean = law_value(spec.law, compute, *law)
    phi = spec.phi if spec.phi is not None else float(rng.choice(PHIS))
    noise, sigma = _noise(spec, rng, clean, phi)
    draft = Draft(compute, clean.copy(), noise, law[3] * ratio, max(sigma, 1e-6))
    for fault in spec.faults:
        draft = FAULTS[fault](draft, rng)
    truth = Truth(spec.law, *law, ratio, sigma, phi, spec.faults, draft.clean)
    return _finish(spec, rng, draft, truth, name)


def _parameters(spec: Spec, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """(R0, A, B, C_mid); everything is drawn, so that fixing one value leaves the others as they were."""
    r0, rise = rng.uniform(0.05, 0.55), rng.uniform(0.08, 0.45)
    b = float(np.clip(np.exp(np.log(1.8) + 0.3 * rng.normal()), 0.5, 5.0))
    c_mid = _log_uniform(rng, 1e3, 12e3)
    r0 = min(r0, 1.0 if spec.A is None else 0.8 * spec.A) if spec.R0 is None else spec.R0
    a = max(min(0.95, r0 + rise), min(r0 + 0.01, 1.0)) if spec.A is None else spec.A
    return r0, a, b if spec.B is None else spec.B, c_mid if spec.C_mid is None else spec.C_mid


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def ar1(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    """Stationary AR(1) noise of unit variance: [n]."""
    shocks = rng.normal(size=n)
    out = np.empty(n)
    last = 0.0
    for i in range(n):
        last = shocks[i] if i == 0 else phi * last + np.sqrt(1.0 - phi**2) * shocks[i]
        out[i] = last
    return out


def eval_sd(score: np.ndarray | float, prompts: int, samples: int) -> np.ndarray:
    """Sampling sd of an evaluation on fixed prompts: the between-prompt part is a constant shift and drops out."""
    score = np.clip(score, 0.0, 1.0)
    return np.sqrt(score * (1.0 - score) * 0.6 / (prompts * samples))


def _noise(spec: Spec, rng: np.random.Generator, clean: np.ndarray, phi: float) -> tuple[np.ndarray, float]:
    """Noise of every evaluation and its typical marginal sd."""
    sigma = spec.sigma
    if sigma is None and spec.sigma_range is not None:
        sigma = _log_uniform(rng, *spec.sigma_range)
    if sigma is not None:
        return sigma * ar1(rng, len(clean), phi), float(sigma)
    sampling = eval_sd(clean, spec.prompts, spec.samples)
    training = _log_uniform(rng, 0.002, 0.008)
    noise = sampling * rng.normal(size=len(clean)) + training * ar1(rng, len(clean), phi)
    return noise, float(np.hypot(np.median(sampling), training))


def _finish(spec: Spec, rng: np.random.Generator, draft: Draft, truth: Truth, name: str) -> Simulated:
    score = np.clip(draft.clean + draft.noise, 0.0, 1.0)
    compute, r0, r0_sd = draft.compute, None, None
    if spec.r0_samples:
        r0_sd = float(eval_sd(truth.R0, spec.prompts, spec.samples)) / np.sqrt(spec.r0_samples)
        r0 = float(np.clip(truth.R0 + r0_sd * rng.normal(), 0.0, 1.0))
    curve = Curve.of(compute, score, r0=r0, r0_sd=r0_sd, name=name)
    if r0 is not None:
        compute, score = np.concatenate([[0.0], compute]), np.concatenate([[r0], score])
    return Simulated(compute, score, curve, truth)
