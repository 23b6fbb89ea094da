"""Group advantages, their normalisation, and the zero-variance filter (paper section 2).

The paper prints the filter as 0 < mean(r) < 1 although its rewards are +-1; "rewards not all equal" is what is meant and
what is done here, with a tolerance, because 0.1 + 0.2 and 0.3 are equal rewards.
Whether the batch std is taken before or after dropping flat groups is not stated. We take it after: a dropped group
only adds zeros, which would shrink the std by sqrt(kept share) and so enlarge the step of a batch with many flat groups.
"""

from __future__ import annotations

import torch
from torch import Tensor

FLAT_TOLERANCE = 1e-6
NORMS = ("batch", "prompt", "none")


def group_advantages(
    rewards: Tensor, norm: str, eps: float = 1e-6, *, zero_variance_filter: bool = True
) -> tuple[Tensor, Tensor]:
    """Advantages A_i = r_i - mean of its group, normalised.

    rewards: [P, G], any real range (P prompts, G completions each).
    norm: "batch" divides by the population std of all advantages of the kept groups, "prompt" by the population std of
        the group's rewards, "none" not at all; `eps` is added to the std.
    zero_variance_filter: False keeps flat groups in the batch, in `keep` and in the batch std.
    Returns advantages [P, G], zero in flat groups, and keep [P] bool: rewards of the group not all equal.
    Raises ValueError for another norm or shape.
    """
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    if rewards.ndim != 2:
        raise ValueError(f"rewards must be [P, G], got shape {tuple(rewards.shape)}")
    varied = rewards.amax(1) - rewards.amin(1) > FLAT_TOLERANCE
    keep = varied if zero_variance_filter else torch.ones_like(varied)
    advantages = (rewards - rewards.mean(1, keepdim=True)) * varied[:, None]
    if norm == "prompt":
        return advantages / (rewards.std(1, correction=0, keepdim=True) + eps), keep
    if norm == "batch" and bool(keep.any()):
        return advantages / (advantages[keep].std(correction=0) + eps), keep
    return advantages, keep
