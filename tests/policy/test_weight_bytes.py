"""Weights as bytes, and invariant 6: the head is fp32, tied or not, on both sides, after every weight update."""

from __future__ import annotations

import pytest
import torch

from scalerl_mini.policy import Policy, head_logits
from scalerl_mini.policy.ragged_attention import PackedSequences
from scalerl_mini.policy.weight_bytes import WeightBytes
from tests.policy.tiny import Tiny, shift_weights, tiny_policy

IDS = torch.tensor([1, 5, 7, 9, 2])


def generator_logits(policy: Policy, hidden: torch.Tensor) -> torch.Tensor:
    """What the engine samples from."""
    return policy.logits(hidden, 1.0)


def trainer_logprobs(policy: Policy) -> torch.Tensor:
    """What the trainer trains on: log-probabilities of IDS[1:]."""
    return policy.score(IDS, torch.tensor([len(IDS)]), torch.arange(1, len(IDS)), 1.0)[0]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@torch.no_grad()
def test_both_heads_are_fp32_and_fresh_after_every_load(tied: bool, dtype: str) -> None:
    """A trainer publishes, a generator loads, three times; a cached fp32 copy of the head would serve the first weights."""
    trainer, generator = (tiny_policy(Tiny(tied=tied, dtype=dtype, seed=seed)) for seed in (0, 1))
    published, loaded = WeightBytes(trainer), WeightBytes(generator)
    hidden = torch.randn(4, 32, generator=torch.Generator().manual_seed(2)).to(trainer.body.dtype)
    seen = []
    for version in range(3):
        for name, view in published.pull().items():
            loaded.views[name][:] = view
        loaded.push(version)
        exact = hidden.double() @ trainer.head_weight.double().T
        assert generator.version == version
        assert (generator_logits(generator, hidden).double() - exact).abs().max() < 1e-5
        assert torch.equal(generator_logits(generator, hidden), generator_logits(trainer, hidden))
        assert torch.equal(trainer_logprobs(generator), trainer_logprobs(trainer))
        seen.append(generator_logits(generator, hidden))
        shift_weights(trainer, seed=version)
    assert (seen[0] - seen[1]).abs().max() > 0.05
    assert (seen[1] - seen[2]).abs().max() > 0.05


@pytest.mark.parametrize("tied", [False, True])
@torch.no_grad()
def test_the_trainer_scores_a_bf16_body_with_an_fp32_softmax(tied: bool) -> None:
    policy = tiny_policy(Tiny(tied=tied, dtype="bfloat16"))
    layout = PackedSequences(torch.tensor([len(IDS)]))
    hidden = policy.hidden_states(IDS, layout.positions, layout)
    assert hidden.dtype == torch.bfloat16
    log_p = (hidden[:-1].double() @ policy.head_weight.double().T).log_softmax(-1)
    exact = log_p.gather(1, IDS[1:, None])[:, 0]
    assert (trainer_logprobs(policy).double() - exact).abs().max() < 1e-5
    policy.fp32_head = False
    assert (trainer_logprobs(policy).double() - exact).abs().max() > 1e-4  # so the bound above can fail


def test_without_the_fix_logits_are_rounded_to_bf16() -> None:
    policy = tiny_policy(Tiny(dtype="bfloat16"))
    hidden = torch.randn(4, 32).bfloat16()
    rounded = head_logits(hidden, policy.head_weight, None, 1.0, fp32=False)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())


@pytest.mark.parametrize("tied", [False, True])
def test_tied_weights_travel_once_and_stay_tied(tied: bool) -> None:
    policy = tiny_policy(Tiny(tied=tied))
    weights = WeightBytes(policy)
    assert ("lm_head.weight" in weights.views) == (not tied)
    assert sum(view.nbytes for view in weights.views.values()) == 4 * sum(p.numel() for p in policy.model.parameters())
    with torch.no_grad():
        weights.views["model.embed_tokens.weight"][:] = 0
    weights.push(1)
    assert (policy.head_weight.abs().max() == 0) == tied


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_byte_arrives(dtype: str) -> None:
    source, target = (tiny_policy(Tiny(dtype=dtype, seed=seed)) for seed in (0, 1))
    into = WeightBytes(target)
    for name, view in WeightBytes(source).pull().items():
        into.views[name][:] = view
    into.push(5)
    for name, tensor in source.named_tensors().items():
        assert torch.equal(tensor, target.named_tensors()[name]), name


def test_a_parameter_that_is_not_contiguous_travels_through_a_buffer() -> None:
    policy = tiny_policy(Tiny())
    policy.head_weight.data = policy.head_weight.data.T.contiguous().T
    weights, before = WeightBytes(policy), policy.head_weight.detach().clone()
    view = weights.pull()["lm_head.weight"].view("float32").reshape(before.shape)
    assert (view == before.numpy()).all()
    view += 1
    assert torch.equal(policy.head_weight, before)
    weights.push(1)
    assert torch.equal(policy.head_weight, before + 1)
