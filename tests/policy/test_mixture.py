"""A mixture of experts: the flat row of tokens against plain `transformers`, generation against scoring, and its size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Request, TorchEngine
from scalerl_mini.training.compute import multiplied_parameters
from scalerl_mini.warmstart.model import ModelSize, build_model
from scalerl_mini.warmstart.tokenizer import build_tokenizer
from tests.policy.tiny import plain, plain_logprobs, shift_weights

SIZE = ModelSize(hidden=32, layers=2, heads=4, kv_heads=2, head_width=8, feed_forward=24, experts=4, active=2)
PROMPTS = [(1, 5, 7), (1, 6, 4, 9, 8), (1, 8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained mixture as the warm start ships it, moved away from its small first weights."""
    path = tmp_path_factory.mktemp("mixture")
    model = build_model(SIZE, seed=1)
    policy = Policy(model.eval(), build_tokenizer())
    shift_weights(policy, seed=0, scale=0.3)
    policy.save(path)
    return path


@pytest.fixture(scope="module")
def mixture(folder: Path) -> Policy:
    return Policy.load(folder)


@torch.no_grad()
def test_scores_are_those_of_plain_transformers(mixture: Policy) -> None:
    rows = [[*prompt, 9, 8, 5, 2] for prompt in PROMPTS]
    ids, lengths = torch.tensor([token for row in rows for token in row]), torch.tensor([len(row) for row in rows])
    ends = lengths.cumsum(0)
    logprobs, _ = mixture.score(ids, lengths, ends - 1, 1.0)
    model = plain(mixture)
    expected = torch.stack([plain_logprobs(model, row)[-1, row[-1]] for row in rows])
    assert torch.allclose(logprobs, expected, atol=1e-5)


def test_sampled_and_rescored_logprobs_agree(mixture: Policy) -> None:
    engine = TorchEngine(mixture, slots=8, prompt_tokens=8, completion_tokens=16)
    for number in range(8):
        engine.submit(Request(PROMPTS[number % 3], 100 + number, (number, 0), 16))
    finished = []
    while engine.running:
        finished += engine.step()
    rows = [np.concatenate([PROMPTS[done.key[0] % 3], done.tokens]) for done in finished]
    lengths = torch.tensor([len(row) for row in rows])
    starts = (lengths.cumsum(0) - lengths).tolist()
    targets = [
        start + at
        for start, row, done in zip(starts, rows, finished, strict=True)
        for at in range(len(row) - len(done.tokens), len(row))
    ]
    with torch.no_grad():
        scored, _ = mixture.score(torch.from_numpy(np.concatenate(rows)).long(), lengths, torch.tensor(targets), 1.0)
    sampled = torch.from_numpy(np.concatenate([done.logprobs for done in finished]))
    assert len(sampled) > 40
    assert float((scored - sampled).abs().max()) < 1e-4


def test_every_expert_learns_and_the_router_too(mixture: Policy) -> None:
    row = torch.tensor([1, *range(3, 24), *range(3, 24)])
    logprobs, _ = mixture.score(row, torch.tensor([len(row)]), torch.arange(1, len(row)), 1.0)
    logprobs.sum().backward()
    for name, parameter in mixture.named_tensors().items():
        assert parameter.grad is not None, name
        if ".experts." in name:
            assert (parameter.grad.flatten(1).abs().sum(1) > 0).all(), name
        if name.endswith("mlp.gate.weight"):
            assert parameter.grad.abs().sum() > 0
        parameter.grad = None


def test_only_active_parameters_count_as_compute(mixture: Policy) -> None:
    """Per layer: q and o 32x32, k and v 16x32, 2 of 4 experts of 3 x 32x24, router 4x32, norms 2 x 32 and 2 x 8."""
    layer = 2 * 32 * 32 + 2 * 16 * 32 + 2 * 3 * 32 * 24 + 4 * 32 + 2 * 32 + 2 * 8
    assert multiplied_parameters(mixture) == 2 * layer + 32 + 24 * 32
    assert mixture.active_experts == 0.5


def test_a_saved_mixture_loads_again(mixture: Policy, tmp_path: Path) -> None:
    mixture.save(tmp_path)
    again = Policy.load(tmp_path)
    assert again.named_tensors().keys() == mixture.named_tensors().keys()
    assert all(torch.equal(tensor, again.named_tensors()[name]) for name, tensor in mixture.named_tensors().items())
    assert mixture.config.router_aux_loss_coef == 0
    assert not mixture.config.output_router_logits
