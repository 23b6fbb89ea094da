"""Token log-probabilities: any chunk gives the full result, values and gradients, and no [N, V] tensor ever exists."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scalerl_mini.policy import head_logits, token_logprobs

TOKENS, WIDTH, VOCABULARY = 23, 6, 11


def example(dtype: torch.dtype = torch.float32, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator).to(dtype).requires_grad_()
    offset = torch.randn(VOCABULARY, generator=generator).to(dtype).requires_grad_() if bias else None
    return hidden, weight, offset, torch.randint(VOCABULARY, (TOKENS,), generator=generator)


def upstream(count: int) -> Tensor:
    return torch.linspace(-1, 2, count)


@pytest.mark.parametrize("chunk", [1, 7, TOKENS, None])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_chunked_is_the_full_softmax_in_values_and_gradients(chunk: int | None, bias: bool, temperature: float) -> None:
    hidden, weight, offset, targets = example(bias=bias)
    logprobs, entropy = token_logprobs(hidden, weight, offset, targets, temperature, chunk_tokens=chunk)
    (logprobs * upstream(TOKENS)).sum().backward()

    leaves = [None if t is None else t.detach().double().requires_grad_() for t in (hidden, weight, offset)]
    logits = leaves[0] @ leaves[1].T + (0 if leaves[2] is None else leaves[2])
    log_p = (logits / temperature).log_softmax(-1)
    full = log_p.gather(1, targets[:, None])[:, 0]
    (full * upstream(TOKENS)).sum().backward()

    assert logprobs.dtype == entropy.dtype == torch.float32
    assert not entropy.requires_grad
    assert torch.allclose(logprobs.double(), full, atol=2e-6)
    assert torch.allclose(entropy.double(), -(log_p.exp() * log_p).sum(-1), atol=2e-6)
    for ours, theirs in zip((hidden, weight, offset), leaves, strict=True):
        if ours is not None:
            assert torch.allclose(ours.grad.double(), theirs.grad, atol=1e-5)


def test_a_token_ruled_out_by_an_infinite_logit_adds_nothing_to_the_entropy() -> None:
    hidden, weight, offset, targets = example()
    assert offset is not None
    some = targets.clamp(max=VOCABULARY - 2)
    ruled_out = torch.cat([offset.detach()[:-1], torch.tensor([-torch.inf])])
    logprobs, entropy = token_logprobs(hidden, weight, ruled_out, some)
    without = token_logprobs(hidden, weight[:-1], offset[:-1], some)
    assert torch.allclose(logprobs, without[0], atol=1e-6)
    assert torch.allclose(entropy, without[1], atol=1e-6)


def test_gradient_in_hidden_matches_finite_differences() -> None:
    hidden, weight, bias, targets = example()
    logprobs, _ = token_logprobs(hidden, weight, bias, targets, 0.7, chunk_tokens=5)
    (logprobs * upstream(TOKENS)).sum().backward()
    with torch.no_grad():
        for place in (0, 17, TOKENS * WIDTH - 1):
            step = torch.zeros_like(hidden)
            step.view(-1)[place] = 1e-2
            up, down = (
                (token_logprobs(hidden + s, weight, bias, targets, 0.7)[0] * upstream(TOKENS)).sum()
                for s in (step, -step)
            )
            assert float(up - down) / 2e-2 == pytest.approx(float(hidden.grad.view(-1)[place]), rel=2e-2, abs=2e-3)


@pytest.mark.parametrize("fp32", [True, False])
def test_a_bf16_head_gives_gradients_in_bf16_close_to_the_truth(fp32: bool) -> None:
    hidden, weight, bias, targets = example(torch.bfloat16)
    logprobs, _ = token_logprobs(hidden, weight, bias, targets, 1.0, fp32, chunk_tokens=7)
    (logprobs * upstream(TOKENS)).sum().backward()
    exact = [t.detach().double().requires_grad_() for t in (hidden, weight, bias)]
    full = (exact[0] @ exact[1].T + exact[2]).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    (full * upstream(TOKENS)).sum().backward()
    # the inputs are bf16 either way: only with fp32 logits is the result exact
    gap = (logprobs.double() - full).abs().max().item()
    assert gap < 2e-6 if fp32 else 1e-3 < gap < 0.1
    for ours, theirs in zip((hidden, weight, bias), exact, strict=True):
        assert ours.grad.dtype == torch.bfloat16
        assert (ours.grad.double() - theirs.grad).norm() < 0.02 * theirs.grad.norm()


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements of any tensor that an operation returned."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self.elements = max(self.elements, value.numel())
        return result


def test_logits_of_more_than_a_chunk_never_exist() -> None:
    """400 tokens of 100 words: the largest tensor, forward and backward, is a chunk's logits, not [N, V] = 40,000."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(400, 2, generator=generator, requires_grad=True)
    weight = torch.randn(100, 2, generator=generator, requires_grad=True)
    with LargestTensor() as largest:
        token_logprobs(hidden, weight, None, torch.zeros(400, dtype=torch.long), chunk_tokens=16)[0].sum().backward()
    assert largest.elements == 16 * 100


def test_the_default_chunk_bounds_the_logits_alive_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalerl_mini.policy.head.CHUNK_ELEMENTS", 1000)
    hidden, weight = torch.zeros(400, 2), torch.zeros(100, 2)
    with LargestTensor() as largest:
        token_logprobs(hidden, weight, None, torch.zeros(400, dtype=torch.long))
    assert largest.elements == 1000


def test_logits_are_divided_by_the_temperature() -> None:
    hidden, weight, bias, _ = example()
    hot, cold = (head_logits(hidden, weight, bias, temperature, True) for temperature in (1.0, 0.25))
    assert torch.allclose(cold, hot * 4)


def test_no_tokens_at_all_are_no_error() -> None:
    hidden, weight, bias, _ = example()
    logprobs, entropy = token_logprobs(hidden[:0], weight, bias, torch.zeros(0, dtype=torch.long))
    assert logprobs.shape == entropy.shape == (0,)
    logprobs.sum().backward()
    assert weight.grad.abs().max() == 0
