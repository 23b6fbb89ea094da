"""From rewards [P prompts, S samples] to mean@S and pass@k, each with the standard error that its use needs.

Two questions, two errors. "How good is the model at questions of this kind?" makes the prompts a sample: completions of one
prompt say much the same, so the prompt is the unit and the error is the spread of its values *between* prompts (clustered).
"Did this checkpoint change on these very prompts?" keeps them fixed: only sampling noise *within* a prompt counts, as in the
curve of a run (`rollout.evaluation.summarise`), which is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalerl_mini.errors import UserError

USUAL_KS = (1, 4, 16)


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts; stderr: between prompts, None where all have the same value: then nothing is known of it."""

    value: float
    stderr: float | None

    @classmethod
    def of(cls, values: np.ndarray) -> Estimate:
        """values: [P], one a prompt, each unbiased for its own prompt."""
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return cls(float(values.mean()), spread / len(values) ** 0.5 if spread else None)


@dataclass(frozen=True)
class Measures:
    """Of one set of prompts. mean: reward; pass_at_k: by k, the share of prompts solved by at least one of k samples."""

    prompts: int
    mean: Estimate
    pass_at_k: dict[int, Estimate]

    @classmethod
    def of(cls, rewards: np.ndarray, ks: tuple[int, ...]) -> Measures:
        """rewards: [P, S] in [0, 1]; every k in 1..S. A prompt is solved by a reward of 1: part of it is not enough."""
        rewards = rewards.astype(np.float64)
        solved = (rewards >= 1.0).sum(axis=1)
        passes = {k: Estimate.of(pass_at_k(solved, rewards.shape[1], k)) for k in ks}
        return cls(len(rewards), Estimate.of(rewards.mean(axis=1)), passes)


def pass_at_k(solved: np.ndarray, samples: int, k: int) -> np.ndarray:
    """Unbiased pass@k of each prompt: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, equation 1).

    solved: [P] correct samples c of n = `samples` each; returns [P]. As a product of k factors, so nothing overflows:
    C(n - c, k) / C(n, k) = prod over j < k of (n - c - j) / (n - j).
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {samples} samples")
    drawn = np.arange(k)
    wrong = np.clip(samples - solved[:, None] - drawn, 0, None)
    return 1.0 - np.prod(wrong / (samples - drawn), axis=1)


def choose_ks(text: str | None, samples: int | None, usual_samples: int) -> tuple[int, tuple[int, ...]]:
    """(samples a prompt, every k of pass@k) from what was typed: "1,4", or None for USUAL_KS as far as they go
    and `samples` itself.

    Without `samples` there are as many as usual, or as the largest k needs. Raises UserError.
    """
    if text is None:
        samples = samples or usual_samples
        return samples, tuple(sorted({*(k for k in USUAL_KS if k < samples), samples}))
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 10 and int(word) > 0 for word in words):
        raise UserError(f"--k {text!r:.80}: write whole numbers from 1 up, as in 1,4,16")
    ks = tuple(sorted({int(word) for word in words}))
    if samples and ks[-1] > samples:
        raise UserError(f"--k {ks[-1]} cannot be estimated from --samples {samples}; ask for {ks[-1]} samples or more")
    return samples or max(usual_samples, ks[-1]), ks
