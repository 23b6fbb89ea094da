"""AdamW with moments in 8 bits: near AdamW, small, and an identical continuation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from scalerl_mini.config import load_config
from scalerl_mini.config_groups import TrainingConfig
from scalerl_mini.errors import UserError
from scalerl_mini.training import extras
from scalerl_mini.training.checkpoint import read_state, restore_optimizer, save_checkpoint
from scalerl_mini.training.optimizer import Optimizer
from tests.policy.tiny import Tiny, tiny_policy

OPTIONS = {"lr": 0.01, "warmup_steps": 0, "eps": 1e-8}


def parameters(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"matrix": (128, 64), "vector": (64,)}  # above and below what is kept in 8 bits
    return {name: torch.randn(shape, generator=generator).to(dtype).requires_grad_() for name, shape in shapes.items()}


def step(optimizer: Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in optimizer.parameters.values():
        parameter.grad = (torch.randn(parameter.shape, generator=generator) + 0.3).to(parameter.dtype)
    optimizer.step()


def eight_bit(tensors: dict[str, Tensor]) -> Optimizer:
    pytest.importorskip("bitsandbytes")
    return Optimizer(tensors, TrainingConfig(optimizer="adamw_8bit", **OPTIONS))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_goes_where_adamw_goes(dtype: torch.dtype) -> None:
    ours, theirs, start = parameters(dtype), parameters(dtype), parameters(dtype)
    small, full = eight_bit(ours), Optimizer(theirs, TrainingConfig(**OPTIONS))  # type: ignore[arg-type]
    for seed in range(20):
        step(small, seed)
        step(full, seed)
    for name in ours:
        moved = small.masters[name] - start[name].float()
        gap = small.masters[name] - full.masters[name]
        assert gap.norm() < 0.05 * moved.norm(), name
    moments = {key: tensor for key, tensor in small.tensors().items() if not key.startswith("master.")}
    assert moments["state1.matrix"].dtype == torch.uint8
    assert sum(tensor.nbytes for key, tensor in moments.items() if key.endswith(".matrix")) < 0.5 * 8 * 128 * 64


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_restored_optimizer_goes_on_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    policy = tiny_policy(Tiny("qwen3", layers=1, hidden=64, dtype=dtype))
    optimizer = eight_bit(policy.named_tensors())
    for seed in range(3):
        step(optimizer, seed)
    folder = save_checkpoint(tmp_path, policy, optimizer, {"updates": optimizer.updates}, keep=1)
    again = tiny_policy(Tiny("qwen3", layers=1, hidden=64, dtype=dtype))
    with torch.no_grad():
        for name, tensor in again.named_tensors().items():
            tensor.copy_(policy.named_tensors()[name])
    restored = eight_bit(again.named_tensors())
    restore_optimizer(folder, restored, read_state(folder)["updates"])
    assert any(key.startswith("qmap1.") for key in restored.tensors())
    for seed in range(3, 6):
        step(optimizer, seed)
        step(restored, seed)
    for name, tensor in policy.named_tensors().items():
        assert torch.equal(tensor, again.named_tensors()[name]), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("training.optimizer=adamw_8bit", "training.eps=1e-8"),
            r"training\.optimizer = 'adamw_8bit' needs bitsandbytes, .*pip install 'scalerl-mini\[optim8bit\]'",
        ),
        (("model.lora_rank=8",), r"model\.lora_rank = 8 needs peft, .*pip install 'scalerl-mini\[lora\]'"),
    ],
)
def test_a_missing_package_is_refused(monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], message: str) -> None:
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        extras.check_packages(load_config(None, settings))
