"""Policy losses: each is one small function from log-ratios to per-token terms that are to be maximised.

The importance ratio rho = pi_train(y_t) / pi_gen(y_t) has the *generator's* probability at sampling time below the line,
so one ratio carries staleness and kernel mismatch together (paper section 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # exp(20) = 5e8: far beyond any cap, and exp cannot overflow


@dataclass(frozen=True)
class PolicyLoss:
    """`loss`: scalar to minimise. `metrics`: sums over the mask (tokens, ratio_sum, ...) that add up over micro-batches;
    divide them by `tokens` once, at the end."""

    loss: Tensor
    metrics: dict[str, float]


def cispo(logprobs: Tensor, ratio: Tensor, advantages: Tensor, eps_max: float = 5.0) -> tuple[Tensor, Tensor]:
    """CISPO: sg(min(rho, eps_max)) * A * log pi. The cap is on the ratio itself and there is no lower one; the gradient
    is that of REINFORCE times the capped ratio, so no token ever loses its gradient. Returns terms and capped [N, T]."""
    weight = ratio.detach().clamp(max=eps_max)
    return weight * advantages * logprobs, ratio > eps_max


def reinforce(logprobs: Tensor, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """REINFORCE: A * log pi, no importance ratio - the ablation without importance sampling."""
    return advantages * logprobs, torch.zeros_like(ratio, dtype=torch.bool)


LOSSES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"cispo": cispo, "reinforce": reinforce}


def policy_loss(
    logprobs: Tensor,
    behavior_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    mask: Tensor,
    *,
    kind: str = "cispo",
    **constants: float,
) -> PolicyLoss:
    """loss = sum(weights * -term) over the mask; entries outside the mask may hold anything, NaN included.

    logprobs: [N, T] of the trained policy, with gradient. behavior_logprobs: [N, T] of the generator at sampling.
    advantages: [N]. weights: [N, T] from `token_weights`. mask: [N, T] bool. kind: a key of LOSSES, with its constants.
    Raises ValueError for another kind.
    """
    if kind not in LOSSES:
        raise ValueError(f"kind must be one of {', '.join(LOSSES)}, got {kind!r}")
    zero = torch.zeros((), dtype=logprobs.dtype, device=logprobs.device)
    logprobs = torch.where(mask, logprobs, zero)
    log_ratio = torch.where(mask, logprobs.detach() - behavior_logprobs, zero)
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    terms, capped = LOSSES[kind](logprobs, ratio, advantages[:, None], **constants)
    loss = -(torch.where(mask, weights, zero.to(weights.dtype)) * torch.where(mask, terms, zero)).sum()
    return PolicyLoss(loss, _metrics(log_ratio, ratio, capped, mask))


@torch.no_grad()
def _metrics(log_ratio: Tensor, ratio: Tensor, capped: Tensor, mask: Tensor) -> dict[str, float]:
    """Sums over the mask. `mismatch_kl_sum` is the k3 estimate of KL(generator || trainer): rho - 1 - log rho."""
    tokens = int(mask.sum())
    inside = ratio[mask]
    return {
        "tokens": float(tokens),
        "ratio_sum": float(inside.sum()),
        "ratio_max": float(inside.max()) if tokens else 0.0,
        "capped_sum": float(capped[mask].sum()),
        "mismatch_kl_sum": float((ratio - 1 - log_ratio)[mask].sum()),
    }
