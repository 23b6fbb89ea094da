"""What goes wrong in real runs, each as a change of a clean synthetic curve. Every fault is off unless named.

`clean` is the noiseless curve that the run really follows, so a collapse or a drift changes it; outliers, gaps and repeats
change only what is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Draft:
    """A run in the making: compute, noiseless score and noise of each row, the last compute, the noise's sd."""

    compute: np.ndarray
    clean: np.ndarray
    noise: np.ndarray
    last: float
    sigma: float


def transient(draft: Draft, rng: np.random.Generator) -> Draft:
    """Format learning: the score starts .02-.2 below the law and catches up within 2-8 % of the run."""
    depth, tau = rng.uniform(0.02, 0.2), rng.uniform(0.02, 0.08) * draft.last
    return replace(draft, clean=np.maximum(draft.clean - depth * np.exp(-draft.compute / tau), 0.0))


def outliers(draft: Draft, rng: np.random.Generator) -> Draft:
    """About 3 % of the evaluations (at least one) are off by 5-10 standard deviations."""
    hit = rng.random(len(draft.noise)) < 0.03
    hit[rng.integers(len(hit))] = True
    size = rng.uniform(5.0, 10.0, len(hit)) * draft.sigma * rng.choice([-1.0, 1.0], len(hit))
    return replace(draft, noise=np.where(hit, size, draft.noise))


def gaps(draft: Draft, rng: np.random.Generator) -> Draft:
    """40 % of the evaluations are missing."""
    return _take(draft, np.sort(rng.permutation(len(draft.compute))[: max(int(0.6 * len(draft.compute)), 1)]))


def repeats(draft: Draft, rng: np.random.Generator) -> Draft:
    """20 % of the evaluations are there twice, with fresh noise, as after a resume."""
    again = np.flatnonzero(rng.random(len(draft.compute)) < 0.2)
    more = _take(draft, np.sort(np.concatenate([np.arange(len(draft.compute)), again])))
    second = np.diff(more.compute, prepend=-1.0) == 0.0
    return replace(more, noise=np.where(second, draft.sigma * rng.normal(size=len(second)), more.noise))


def collapse(draft: Draft, rng: np.random.Generator) -> Draft:
    """From 80-92 % of the run on the score falls by .05-.25."""
    start = rng.uniform(0.8, 0.92) * draft.last
    share = np.clip((draft.compute - start) / (draft.last - start), 0.0, 1.0)
    return replace(draft, clean=np.maximum(draft.clean - rng.uniform(0.05, 0.25) * share, 0.0))


def second_phase(draft: Draft, rng: np.random.Generator) -> Draft:
    """A second sigmoid of +.06 sets in around the end of the run."""
    middle = rng.uniform(0.7, 1.3) * draft.last
    return replace(draft, clean=draft.clean + 0.06 / (1.0 + (middle / draft.compute) ** 6))


def step(draft: Draft, rng: np.random.Generator) -> Draft:
    """A jump of +.02 somewhere in the middle (a change of learning rate or data)."""
    return replace(draft, clean=draft.clean + 0.02 * (draft.compute > rng.uniform(0.3, 0.8) * draft.last))


def drift(draft: Draft, rng: np.random.Generator) -> Draft:
    """A slow linear loss of .03 over the run."""
    return replace(draft, clean=np.maximum(draft.clean - 0.03 * draft.compute / draft.last, 0.0))


def fresh_prompts(draft: Draft, rng: np.random.Generator) -> Draft:
    """Prompts are drawn anew at each evaluation: the between-prompt sd of .011 comes back."""
    return replace(draft, noise=draft.noise + 0.011 * rng.normal(size=len(draft.noise)))


def noisy_start(draft: Draft, rng: np.random.Generator) -> Draft:
    """Noise 2.5 times larger at the start, fading over the first third."""
    return replace(draft, noise=draft.noise * (1.0 + 1.5 * np.exp(-3.0 * draft.compute / draft.last)))


def _take(draft: Draft, rows: np.ndarray) -> Draft:
    return replace(draft, compute=draft.compute[rows], clean=draft.clean[rows], noise=draft.noise[rows])


FAULTS: dict[str, Callable[[Draft, np.random.Generator], Draft]] = {
    f.__name__: f
    for f in (
        transient, outliers, gaps, repeats, collapse, second_phase, step, drift, fresh_prompts, noisy_start,
    )
}  # fmt: skip
