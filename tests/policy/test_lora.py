"""LoRA: nothing changes at first, only adapters are trained, and what is published is the merged weight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scalerl_mini.errors import UserError
from scalerl_mini.policy import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from tests.policy.tiny import Tiny, tiny_policy

pytest.importorskip("peft")
IDS, LENGTHS, TARGETS = torch.arange(20) % 20, torch.tensor([9, 11]), torch.tensor([4, 5, 6, 12, 15, 19])


def adapted(targets: str = "all-linear", seed: int = 0, **tiny: object) -> Policy:
    policy = tiny_policy(Tiny(**tiny))  # type: ignore[arg-type]
    policy.add_adapters(4, 8.0, targets, seed)
    return policy


def score(policy: Policy) -> torch.Tensor:
    return policy.score(IDS, LENGTHS, TARGETS, 1.0)[0]


@torch.no_grad()
def train(policy: Policy) -> None:
    """Both matrices of every adapter move."""
    generator = torch.Generator().manual_seed(1)
    for tensor in policy.trained_tensors().values():
        tensor += 0.1 * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)


@pytest.mark.parametrize("tied", [False, True])
def test_at_first_the_policy_is_the_start_model(tied: bool) -> None:
    start, policy = tiny_policy(Tiny(tied=tied)), adapted(tied=tied)
    assert torch.equal(score(policy), score(start))
    published = WeightBytes(policy).pull()
    assert list(published) == list(start.named_tensors())
    for name, tensor in WeightBytes(start).pull().items():
        assert (published[name] == tensor).all(), name


def test_only_adapters_get_a_gradient() -> None:
    policy = adapted()
    train(policy)
    score(policy).sum().backward()
    with_gradient = {name for name, parameter in policy.model.named_parameters() if parameter.grad is not None}
    assert with_gradient == {name for name, _ in policy.model.named_parameters() if ".lora_" in name}
    assert len(with_gradient) == len(policy.trained_tensors()) == 2 * 2 * 7  # A and B, two layers, seven matrices


@pytest.mark.parametrize(("dtype", "gap"), [("float32", 1e-5), ("bfloat16", 0.3)])
def test_the_published_weights_compute_what_the_trainer_computes(dtype: str, gap: float) -> None:
    policy, other = adapted(dtype=dtype), tiny_policy(Tiny(dtype=dtype))
    before = score(policy)
    train(policy)
    receiver = WeightBytes(other)
    for name, view in WeightBytes(policy).pull().items():
        receiver.views[name][:] = view
    receiver.push(1)
    assert (score(policy) - before).abs().max() > 0.5
    assert (score(policy) - score(other)).abs().max() < gap


def test_merged_is_the_weight_and_the_scaled_product() -> None:
    policy = adapted("q_proj")
    train(policy)
    name = "model.layers.1.self_attn.q_proj"
    first, second = (policy.trained_tensors()[f"{name}.lora_{side}.weight"] for side in "AB")
    weight = policy.named_tensors()[f"{name}.weight"]
    assert set(policy.adapted) == {f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(2)}
    torch.testing.assert_close(policy.merged(f"{name}.weight", weight), weight + 8.0 / 4 * second @ first)


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_folder_holds_the_merged_model_and_the_adapters(tmp_path: Path, tied: bool) -> None:
    policy = adapted(tied=tied)
    train(policy)
    policy.save(tmp_path)
    script = (
        "import sys, torch; from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "assert not any('lora' in name for name in model.state_dict())\n"
        "torch.save(model.state_dict(), sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path), str(tmp_path / "loaded.pt")], check=True)
    loaded = torch.load(tmp_path / "loaded.pt", weights_only=True)
    for name, tensor in policy.named_tensors().items():
        assert torch.equal(loaded[name], policy.merged(name, tensor)), name
    again = adapted(tied=tied, seed=5)
    again.restore_adapters(tmp_path)
    assert torch.equal(score(again), score(policy))


def test_the_seed_decides_the_first_matrices() -> None:
    first, same, other = (adapted(seed=seed).trained_tensors() for seed in (0, 0, 1))
    name = next(iter(first))
    assert torch.equal(first[name], same[name])
    assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize("targets", ["no_such_layer", "lm_head", "q_proj,lm_head", "embed_tokens"])
def test_targets_that_do_not_fit_are_refused(targets: str) -> None:
    with pytest.raises(UserError, match=r"model\.lora_targets = ") as caught:
        adapted(targets)
    assert "\n" not in str(caught.value)
