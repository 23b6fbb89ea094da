"""Policy losses: each is one small function from log-ratios to per-token terms that are to be maximised.

The importance ratio rho = pi_train(y_t) / pi_gen(y_t) has the *generator's* probability at sampling time below the line,
so one ratio carries staleness and kernel mismatch together (paper section 2). Every loss returns, beside its terms, which
tokens its bound has taken hold of: clipped (PPO type: no gradient left) or capped (CISPO: a bounded one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: far beyond any cap, and exp cannot overflow

Terms = tuple[Tensor, Tensor]  # terms [N, T] and bounded [N, T] bool


@dataclass(frozen=True)
class PolicyLoss:
    """`loss`: scalar to minimise. `metrics`: sums over the mask (tokens, ratio_sum, ...) that add up over micro-batches;
    divide them by `tokens` once, at the end. Those that end in `_max` are maxima. `bounded`: bool [N, T], tokens that were
    clipped or capped."""

    loss: Tensor
    metrics: dict[str, float]
    bounded: Tensor


def cispo(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, mask: Tensor, eps_max: float = 5.0) -> Terms:
    """CISPO: sg(min(rho, eps_max)) * A * log pi. The cap is on the ratio itself and there is no lower one; the gradient
    is that of REINFORCE times the capped ratio, so no token ever loses its gradient."""
    ratio = log_ratio.detach().exp()
    return ratio.clamp(max=eps_max) * advantages * logprobs, ratio > eps_max


def reinforce(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, mask: Tensor) -> Terms:
    """REINFORCE: A * log pi, no importance ratio - the ablation without importance sampling."""
    return advantages * logprobs, torch.zeros_like(mask)


def grpo(logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, mask: Tensor, eps: float = 0.2) -> Terms:
    """GRPO: min(rho A, clip(rho, 1 - eps, 1 + eps) A); eps = 0.2 on both sides in the DeepSeek recipe."""
    return dapo(logprobs, log_ratio, advantages, mask, eps_low=eps, eps_high=eps)


def dapo(
    logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, mask: Tensor, eps_low: float = 0.2, eps_high: float = 0.26
) -> Terms:
    """DAPO: GRPO with a wider upper clip, 0.2 / 0.26 in this paper (0.2 / 0.28 in DAPO's own)."""
    return _clipped_surrogate(log_ratio.exp(), advantages, eps_low, eps_high)


def gspo(
    logprobs: Tensor, log_ratio: Tensor, advantages: Tensor, mask: Tensor, eps_low: float = 3e-3, eps_high: float = 4e-3
) -> Terms:
    """GSPO: min(s A, clip(s, 1 - eps_low, 1 + eps_high) A) with the length-normalised sequence ratio
    s = exp(mean_t log rho); its clipped term is given to every token of the completion."""
    tokens = mask.sum(1, keepdim=True).clamp(min=1)
    sequence_ratio = (log_ratio.sum(1, keepdim=True) / tokens).exp().expand(log_ratio.shape)
    return _clipped_surrogate(sequence_ratio, advantages, eps_low, eps_high)


def _clipped_surrogate(ratio: Tensor, advantages: Tensor, eps_low: float, eps_high: float) -> Terms:
    """PPO's pessimistic bound, and where it is in force (the gradient there is zero)."""
    terms = torch.minimum(ratio * advantages, ratio.clamp(1 - eps_low, 1 + eps_high) * advantages)
    clipped = torch.where(advantages > 0, ratio > 1 + eps_high, ratio < 1 - eps_low) & (advantages != 0)
    return terms, clipped


LOSSES: dict[str, Callable[..., Terms]] = {
    "cispo": cispo,
    "reinforce": reinforce,
    "grpo": grpo,
    "dapo": dapo,
    "gspo": gspo,
}


def policy_loss(
    logprobs: Tensor,
    behavior_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    mask: Tensor,
    *,
    kind: str = "cispo",
    correction: str = "none",
    correction_cap: float = 2.0,
    reference_logprobs: Tensor | None = None,
    kl_coefficient: float = 0.0,
    **constants: float,
) -> PolicyLoss:
    """loss = sum(weights * -term) over the mask; entries outside the mask may hold anything, NaN included.

    logprobs: [N, T] of the trained policy, with gradient. behavior_logprobs: [N, T] of the generator at sampling.
    advantages: [N]. weights: [N, T] from `token_weights`. mask: [N, T] bool. kind: a key of LOSSES, with its constants.
    correction: "truncate" multiplies each term by sg(min(rho, correction_cap)), "mask" by 1 or, above the cap, by 0;
        truncated REINFORCE is CISPO.
    reference_logprobs: [N, T] of a frozen model; adds kl_coefficient * KL(policy || reference) by the k3 estimator
        exp(d) - 1 - d with d = log pi_ref - log pi, weighted like the terms.
    Raises ValueError for another kind or correction.
    """
    if kind not in LOSSES:
        raise ValueError(f"kind must be one of {', '.join(LOSSES)}, got {kind!r}")
    zero = torch.zeros((), dtype=logprobs.dtype, device=logprobs.device)
    logprobs = torch.where(mask, logprobs, zero)
    log_ratio = torch.where(mask, logprobs - behavior_logprobs, zero).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    terms, bounded = LOSSES[kind](logprobs, log_ratio, advantages[:, None], mask, **constants)
    terms = terms * _correction(log_ratio.detach().exp(), correction, correction_cap)
    if reference_logprobs is not None:
        gap = torch.where(mask, reference_logprobs - logprobs, zero).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        terms = terms - kl_coefficient * (gap.exp() - 1 - gap)
    loss = -(torch.where(mask, weights, zero.to(weights.dtype)) * torch.where(mask, terms, zero)).sum()
    bounded = bounded & mask
    return PolicyLoss(loss, _metrics(log_ratio.detach(), bounded, advantages, mask), bounded)


def _correction(ratio: Tensor, kind: str, cap: float) -> Tensor:
    """Factor of each term, without gradient."""
    if kind == "none":
        return torch.ones_like(ratio)
    if kind == "truncate":
        return ratio.clamp(max=cap)
    if kind == "mask":
        return (ratio <= cap).to(ratio.dtype)
    raise ValueError(f"correction must be none, truncate or mask, got {kind!r}")


@torch.no_grad()
def _metrics(log_ratio: Tensor, bounded: Tensor, advantages: Tensor, mask: Tensor) -> dict[str, float]:
    """Sums over the mask, and maxima. `mismatch_kl_sum` is the k3 estimate of KL(generator || trainer): rho - 1 - log rho;
    `logprob_gap_sum` and `_max` are of |log rho|."""
    tokens = int(mask.sum())
    inside = log_ratio[mask]
    ratio = inside.exp()
    positive = (bounded & (advantages[:, None] > 0))[mask]
    return {
        "tokens": float(tokens),
        "ratio_sum": float(ratio.sum()),
        "ratio_max": float(ratio.max()) if tokens else 0.0,
        "capped_sum": float(bounded[mask].sum()),
        "capped_positive_sum": float(positive.sum()),
        "mismatch_kl_sum": float((ratio - 1 - inside).sum()),
        "logprob_gap_sum": float(inside.abs().sum()),
        "logprob_gap_max": float(inside.abs().max()) if tokens else 0.0,
    }
