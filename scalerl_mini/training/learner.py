"""One optimiser step: the paper's objective over a batch, summed over micro-batches.

    for each micro-batch:  logprobs of its trained tokens -> policy loss (capped ratio x advantage x log-probability)
                           -> backward
    clip the gradient, AdamW step

A batch in which every group was flat has no loss: the step is counted, the weights stay as they are. So they do when a loss
or gradient is not finite, or when not one token has a finite behaviour log-probability: the step is skipped, and says why.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from scalerl_mini.config import Config
from scalerl_mini.objective import policy_loss
from scalerl_mini.policy.model import Policy
from scalerl_mini.training.batch import Batch, MicroBatch
from scalerl_mini.training.clipped_tokens import ClippedTokens
from scalerl_mini.training.optimizer import Optimizer


class Learner:
    """Owns the gradient: `update` changes the policy's weights by one step. `reference`: frozen start model of the KL."""

    def __init__(self, policy: Policy, optimizer: Optimizer, config: Config, reference: Policy | None = None) -> None:
        self.policy, self.optimizer, self.config, self.reference = policy, optimizer, config, reference
        self.clipped_tokens = ClippedTokens(policy.head_weight.shape[0])

    def update(self, batch: Batch) -> tuple[dict[str, Any], int]:
        """Train on one batch; returns the step's metrics and the tokens run forward and backward.

        The metric `skipped` is None, or what was not finite; the weights are unchanged then. They also are when the
        scaled gradient of an fp16 body overflowed, which `overflows` counts: that is the loss scale finding its value.
        """
        sums: defaultdict[str, float] = defaultdict(float)
        maxima: defaultdict[str, float] = defaultdict(float)
        forward_tokens, loss = 0, 0.0
        for micro in batch.micro_batches(self.config.training.micro_batch_tokens, self.policy.device):
            part, metrics, entropy = self._backward(micro)
            loss += part
            forward_tokens += len(micro.ids)
            for name, value in (*metrics.items(), ("entropy_sum", entropy)):
                if name.endswith("_max"):
                    maxima[name] = max(maxima[name], value)
                else:
                    sums[name] += value
        scale = {"loss_scale": self.optimizer.loss_scale, "overflows": self.optimizer.overflows}
        if not forward_tokens:
            skipped = _UNUSABLE if batch.unusable else None
            return _EMPTY | {"loss": 0.0, "grad_norm": 0.0, "skipped": skipped} | scale, 0
        skipped, grad_norm = None, None
        if math.isfinite(loss):
            grad_norm = self.optimizer.step()
            if not math.isfinite(grad_norm) and self.optimizer.overflows == scale["overflows"]:
                skipped = f"the gradient norm is {grad_norm}"
        else:
            skipped = f"the loss is {loss}"
            self.optimizer.discard()
        means = {name.removesuffix("_sum"): total / sums["tokens"] for name, total in sums.items() if name != "tokens"}
        return {
            "loss": loss,
            "ratio_mean": means["ratio"],
            **maxima,
            "clamped_fraction": means["capped"],
            "clamped_positive_fraction": means["capped_positive"],
            "mismatch_kl": means["mismatch_kl"],
            "logprob_gap_mean": means["logprob_gap"],
            "entropy": means["entropy"],
            "grad_norm": grad_norm,
            "skipped": skipped,
            "loss_scale": scale["loss_scale"],
            "overflows": self.optimizer.overflows,
        }, forward_tokens

    def _backward(self, micro: MicroBatch) -> tuple[float, dict[str, float], float]:
        """Add one micro-batch to the gradient; returns its loss, metric sums and entropy sum."""
        objective = self.config.objective
        logprobs, entropy = self._score(self.policy, micro)
        reference = None
        if self.reference:
            with torch.no_grad():
                reference, _ = self._score(self.reference, micro)
        result = policy_loss(
            logprobs,
            micro.behavior_logprobs,
            micro.advantages,
            micro.weights,
            micro.mask,
            kind=objective.loss,
            correction=objective.correction,
            correction_cap=objective.correction_cap,
            reference_logprobs=reference,
            kl_coefficient=objective.kl_coefficient,
            **objective.constants,
        )
        self.optimizer.scaled(result.loss).backward()
        self.optimizer.collect()
        place = micro.row, micro.column
        self.clipped_tokens.add(micro.ids[micro.targets], micro.advantages[micro.row], result.bounded[place])
        return float(result.loss.detach()), result.metrics, float(entropy.sum())

    def _score(self, policy: Policy, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """Log-probabilities [n, T] (zero outside the mask) and entropy [M] of the trained tokens under a policy."""
        chosen, entropy = policy.score(micro.ids, micro.lengths, micro.targets, self.config.rollout.temperature)
        return chosen.new_zeros(micro.mask.shape).index_put((micro.row, micro.column), chosen), entropy


_EMPTY: dict[str, Any] = dict.fromkeys(
    (
        "ratio_mean",
        "ratio_max",
        "clamped_fraction",
        "clamped_positive_fraction",
        "mismatch_kl",
        "logprob_gap_mean",
        "logprob_gap_max",
        "entropy",
    )
)
_UNUSABLE = "no behaviour log-probability of the batch is finite"
