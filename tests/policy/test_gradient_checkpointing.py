"""Gradient checkpointing keeps fewer bytes for the backward pass and changes no gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scalerl_mini.errors import UserError
from scalerl_mini.policy import Policy
from tests.policy.tiny import Tiny, tiny_policy

LENGTHS = torch.tensor([40, 25, 60])


def gradients(policy: Policy) -> tuple[dict[str, Tensor], int]:
    """Gradient of a sum of log-probabilities, and the bytes that its forward pass keeps for it."""
    ids = torch.randint(1, 20, (int(LENGTHS.sum()),), generator=torch.Generator().manual_seed(0))
    targets = torch.arange(1, 40)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs, _ = policy.score(ids, LENGTHS, targets, 1.0)
    logprobs.sum().backward()
    found = {name: tensor.grad for name, tensor in policy.named_tensors().items() if tensor.grad is not None}
    return found, sum(kept.values())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_the_gradient_is_the_same_and_less_is_kept(family: str) -> None:
    plain, thrifty = tiny_policy(Tiny(family)), tiny_policy(Tiny(family))
    thrifty.checkpoint_activations()
    expected, kept_by_plain = gradients(plain)
    found, kept = gradients(thrifty)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert kept < kept_by_plain / 2


def test_dropout_stays_off() -> None:
    policy = tiny_policy(Tiny())
    policy.checkpoint_activations()
    assert not any(module.training for module in policy.model.modules() if not list(module.children()))


def test_an_architecture_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy(Tiny())
    monkeypatch.setattr(type(policy.model), "supports_gradient_checkpointing", False)
    with pytest.raises(UserError, match="set it to false"):
        policy.checkpoint_activations()
