"""Ragged rows through our attention against padded batches and single sequences through plain `transformers`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import DecodeStep, KeyValueCache, PackedSequences
from tests.policy.tiny import Tiny, plain, tiny_policy

MODELS = [
    Tiny("llama", kv_heads=2),
    Tiny("llama", kv_heads=4, tied=True),
    Tiny("llama", kv_heads=1),
    Tiny("qwen2", kv_heads=2, tied=True),
    Tiny("qwen2", kv_heads=4),
    Tiny("qwen3", kv_heads=2),
    Tiny("qwen3", kv_heads=1, tied=True),
    Tiny("qwen3", kv_heads=4, layers=3),
]


def sequences(seed: int, count: int, longest: int) -> list[Tensor]:
    """Random token sequences; the first has one token only."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [1, *torch.randint(1, longest + 1, (count - 1,), generator=generator).tolist()]
    return [torch.randint(3, 24, (length,), generator=generator) for length in lengths]


def ragged_hidden(policy: Policy, rows: list[Tensor]) -> Tensor:
    layout = PackedSequences(torch.tensor([len(row) for row in rows]))
    return policy.hidden_states(torch.cat(rows), layout.positions, layout)


def padded_hidden(policy: Policy, rows: list[Tensor]) -> Tensor:
    """The same tokens as one right-padded batch with an attention mask through sdpa."""
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    hidden = plain(policy, "sdpa").base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    return hidden[mask.bool()]


@pytest.mark.parametrize("tiny", MODELS, ids=lambda tiny: f"{tiny.family}-{tiny.heads}/{tiny.kv_heads}-{tiny.tied}")
@torch.no_grad()
def test_ragged_equals_padded_transformers(tiny: Tiny) -> None:
    policy = tiny_policy(tiny)
    for seed in range(3):
        rows = sequences(seed, count=6, longest=17)
        ours, theirs = ragged_hidden(policy, rows), padded_hidden(policy, rows)
        assert ours.shape == theirs.shape == (sum(map(len, rows)), tiny.hidden)
        assert torch.allclose(ours, theirs, atol=2e-5), float((ours - theirs).abs().max())


def test_gradients_through_the_body_equal_padded_transformers() -> None:
    rows = sequences(3, count=5, longest=9)
    reference = tiny_policy(Tiny("qwen3"))
    direction = torch.randn(sum(map(len, rows)), 32, generator=torch.Generator().manual_seed(1))
    layout = PackedSequences(torch.tensor([len(row) for row in rows]))
    parameters = list(reference.body.parameters())
    ours = torch.autograd.grad(
        (reference.hidden_states(torch.cat(rows), layout.positions, layout) * direction).sum(), parameters
    )
    model = plain(reference, "sdpa").base_model
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    hidden = model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[mask.bool()]
    theirs = torch.autograd.grad((hidden * direction).sum(), list(model.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm() + 1e-6


@torch.no_grad()
def test_a_sequence_does_not_see_its_neighbours(qwen3: Policy) -> None:
    rows = sequences(5, count=4, longest=8)
    before = ragged_hidden(qwen3, rows)
    changed = [rows[0], (rows[1] + 1) % 24, *rows[2:]]
    after = ragged_hidden(qwen3, changed)
    own = slice(1, 1 + len(rows[1]))
    assert not torch.allclose(before[own], after[own], atol=1e-3)
    keep = torch.ones(len(before), dtype=torch.bool)
    keep[own] = False
    assert torch.equal(before[keep], after[keep])


def test_pack_and_unpack_are_the_identity() -> None:
    layout = PackedSequences(torch.tensor([3, 1, 4]))
    flat = torch.arange(8 * 2 * 5, dtype=torch.float32).view(8, 2, 5)
    padded = layout.pad(flat)
    assert padded.shape == (3, 2, 4, 5)
    assert torch.equal(layout.unpad(padded), flat)
    assert padded[1, :, 1:].abs().max() == 0
    assert layout.positions.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert layout.last.tolist() == [2, 3, 7]


@torch.no_grad()
@pytest.mark.parametrize("tiny", [Tiny("llama", kv_heads=1), Tiny("qwen3"), Tiny("qwen2", kv_heads=4)])
def test_decoding_into_slots_equals_the_whole_sequence(tiny: Tiny) -> None:
    """Two prompts into slots 3, 0 and 4 (one of them twice), then two steps with the middle slots idle."""
    policy = tiny_policy(tiny)
    cache = KeyValueCache(policy.config, slots=6, capacity=12, dtype=torch.float32, device=policy.device)
    first, second = torch.tensor([5, 6, 7, 8]), torch.tensor([9, 10])
    none = torch.zeros(0, dtype=torch.long)
    prompts = PackedSequences(torch.tensor([4, 2]))
    layout = DecodeStep(cache, none, none, prompts, torch.tensor([3, 0, 4]), torch.tensor([0, 1, 1]))
    policy.hidden_states(torch.cat([first, second]), prompts.positions, layout)
    nothing = (None, none, none)
    one = DecodeStep(cache, torch.tensor([0, 3]), torch.tensor([2, 4]), *nothing)
    policy.hidden_states(torch.tensor([11, 12]), one.positions, one)
    two = DecodeStep(cache, torch.tensor([0, 3, 4]), torch.tensor([3, 5, 2]), *nothing)
    hidden = policy.hidden_states(torch.tensor([13, 14, 15]), two.positions, two)
    whole = [[9, 10, 11, 13], [5, 6, 7, 8, 12, 14], [9, 10, 15]]
    for row, ids in zip(hidden, whole, strict=True):
        assert torch.allclose(row, ragged_hidden(policy, [torch.tensor(ids)])[-1], atol=2e-5)
