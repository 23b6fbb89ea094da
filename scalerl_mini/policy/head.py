"""The language-model head: logits in fp32, and log-probabilities of given tokens without ever holding all logits.

The head in fp32 on both sides moved the ceiling of the paper's baseline from .52 to .61 (section 3): bf16 logits round
the generator's and the trainer's probabilities differently. Weights are cast at each call, never cached: a cached fp32
copy that is not refreshed at a weight update would serve old logits for ever.

[N, V] logits of a training batch would dwarf the model, so `token_logprobs` works through chunks of tokens and computes
each chunk's logits a second time in the backward pass instead of keeping them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ELEMENTS = 1 << 22  # logits alive at once: 16 MB in fp32
LEAST = torch.finfo(torch.float32).min


def head_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, fp32: bool) -> Tensor:
    """Logits divided by the temperature: hidden [N, D], weight [V, D], bias [V] or None -> [N, V] fp32.

    fp32=False multiplies in the body's precision and only then converts, as a model without the fix does.
    """
    if fp32:
        hidden, weight, bias = hidden.float(), weight.float(), None if bias is None else bias.float()
    logits = F.linear(hidden, weight, bias).float()
    return logits if temperature == 1 else logits / temperature


def token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    fp32: bool = True,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target token and entropy of each distribution at `temperature`.

    hidden: [N, D]; weight: [V, D]; targets: [N] int64. chunk_tokens: tokens whose logits exist at once (default: as many
    as CHUNK_ELEMENTS allows). Returns logprobs [N] fp32 (differentiable in hidden, weight and bias) and entropy [N] in
    nats (no gradient). The result does not depend on the chunk size beyond rounding.
    """
    chunk = chunk_tokens or max(1, CHUNK_ELEMENTS // weight.shape[0])
    return _ChunkedLogprobs.apply(hidden, weight, bias, targets, temperature, fp32, chunk)


class _ChunkedLogprobs(torch.autograd.Function):
    """Forward keeps hidden states only; backward recomputes the logits chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        fp32: bool,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.options = temperature, fp32, chunk
        logprobs = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
        entropy = torch.empty_like(logprobs)
        weight, bias = _cast(weight, bias, fp32)
        for start in range(0, len(targets), chunk):
            rows = slice(start, start + chunk)
            log_p = head_logits(hidden[rows], weight, bias, temperature, fp32).log_softmax(-1)
            logprobs[rows] = log_p.gather(1, targets[rows, None]).squeeze(1)
            finite = log_p.clamp(min=LEAST)  # a token ruled out by a logit of -inf adds 0, and not 0 x inf
            entropy[rows] = -torch.linalg.vecdot(log_p.exp_(), finite)
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets = ctx.saved_tensors
        temperature, fp32, chunk = ctx.options
        work = torch.float32 if fp32 else hidden.dtype
        matrix, offset = _cast(weight, bias, fp32)
        grad_hidden = torch.empty_like(hidden)
        trained = ctx.needs_input_grad[1]  # frozen under LoRA adapters
        grad_weight = torch.zeros(weight.shape if trained else 0, dtype=torch.float32, device=weight.device)
        grad_bias = None if bias is None else torch.zeros(bias.shape, dtype=torch.float32, device=weight.device)
        for start in range(0, len(targets), chunk):
            rows = slice(start, start + chunk)
            grad_logits = head_logits(hidden[rows], matrix, offset, temperature, fp32).softmax(-1).neg_()
            grad_logits.scatter_add_(1, targets[rows, None], torch.ones_like(grad_logits[:, :1]))
            grad_logits *= grads[0][rows, None] / temperature
            grad_hidden[rows] = (grad_logits.to(work) @ matrix).to(hidden.dtype)
            if (
                trained and work == torch.float32
            ):  # in place: a [V, D] product of its own costs more than the matrix product
                grad_weight.addmm_(grad_logits.T, hidden[rows].float())
            elif trained:
                grad_weight += (grad_logits.to(work).T @ hidden[rows].to(work)).float()
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)
        return (
            grad_hidden,
            grad_weight.to(weight.dtype) if trained else None,
            None if bias is None or grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
            None,
            None,
        )


def _cast(weight: Tensor, bias: Tensor | None, fp32: bool) -> tuple[Tensor, Tensor | None]:
    """Once for all chunks: the fp32 copy of a 16-bit head is as large as its gradient."""
    return (weight.float(), None if bias is None else bias.float()) if fp32 else (weight, bias)
