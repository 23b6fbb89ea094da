"""AdamW against torch's own, fp32 masters of a bf16 or fp16 body, warm-up, clipping, and an identical continuation."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from scalerl_mini.config_groups import TrainingConfig
from scalerl_mini.training.optimizer import Optimizer

SHAPES = {"matrix": (5, 3), "vector": (4,)}


def parameters(dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator).to(dtype).requires_grad_() for name, shape in SHAPES.items()}


def set_gradients(tensors: dict[str, Tensor], seed: int, scale: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(1000 + seed)
    for tensor in tensors.values():
        tensor.grad = (scale * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)


def config(**options: object) -> TrainingConfig:
    return TrainingConfig(**({"lr": 0.01, "warmup_steps": 0, "grad_clip": 1e9} | options))


def test_an_fp32_body_is_updated_as_by_torch_adamw() -> None:
    ours, theirs = parameters(), parameters()
    options = config(betas=(0.8, 0.95), eps=1e-9, weight_decay=0.1)
    optimizer = Optimizer(ours, options)
    adamw = torch.optim.AdamW(theirs.values(), lr=0.01, betas=(0.8, 0.95), eps=1e-9, weight_decay=0.1)
    for step in range(20):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        optimizer.step()
        adamw.step()
        for name in SHAPES:
            assert torch.equal(ours[name], theirs[name])
    assert all(optimizer.masters[name] is ours[name] for name in SHAPES)


def test_the_first_steps_by_hand() -> None:
    """Gradient g, then g: both corrected moments stay g and g^2, so each step is lr * sign(g), after the decay."""
    weight = torch.tensor([2.0, -1.0], requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config(weight_decay=0.5, eps=1e-12))
    expected = [2.0, -1.0]
    for _ in range(2):
        weight.grad = torch.tensor([3.0, -4.0])
        assert optimizer.step() == pytest.approx(5.0)
        expected = [value * (1 - 0.01 * 0.5) - 0.01 * sign for value, sign in zip(expected, (1, -1), strict=True)]
        assert weight.tolist() == pytest.approx(expected, rel=1e-6)
        assert weight.grad is None


def test_tiny_updates_of_a_bf16_body_are_not_lost() -> None:
    """200 steps of 1e-5 on weights of 1, where bf16 numbers lie 2^-8 = 0.004 apart: each alone rounds to nothing."""
    weight = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config(lr=1e-4, weight_decay=0.0))
    for _ in range(200):
        weight.grad = torch.ones(4, dtype=torch.bfloat16)
        optimizer.step()
    assert optimizer.masters["weight"].tolist() == pytest.approx([1 - 200 * 1e-4] * 4, abs=1e-5)
    assert torch.equal(weight, optimizer.masters["weight"].bfloat16())
    assert weight[0].item() < 0.985


def test_a_bf16_body_follows_the_fp32_trajectory() -> None:
    """Masters see the same gradients as an fp32 run, so only the rounding of the body is between the two."""
    bf16, fp32 = (
        parameters(torch.bfloat16),
        {name: t.detach().float() for name, t in parameters(torch.bfloat16).items()},
    )
    optimizer = Optimizer(bf16, config())
    reference = Optimizer({name: tensor.requires_grad_() for name, tensor in fp32.items()}, config())
    for step in range(30):
        set_gradients(bf16, step)
        for name in SHAPES:
            fp32[name].grad = bf16[name].grad.float()
        optimizer.step()
        reference.step()
    for name in SHAPES:
        assert torch.equal(optimizer.masters[name], fp32[name])
        assert torch.equal(bf16[name], fp32[name].bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_micro_batches_add_up(dtype: torch.dtype) -> None:
    """1 and 255 times 1/512: in bf16 the sum would stay at 1."""
    weight = torch.zeros(1, dtype=dtype, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config())
    for value in [1.0] + [1 / 512] * 255:
        (weight * value).sum().backward()
        optimizer.collect()
    assert optimizer.step() == pytest.approx(1 + 255 / 512)


def test_warm_up_is_linear_and_counts_updates() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config(lr=0.1, warmup_steps=4, weight_decay=0.0, eps=1e-15))
    moved = []
    for _ in range(6):
        before = float(weight.detach())
        weight.grad = torch.ones(1)
        optimizer.step()
        moved.append(before - float(weight.detach()))
    assert moved == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rel=1e-4)


def test_no_warm_up_begins_with_the_full_rate() -> None:
    assert Optimizer(parameters(), config(warmup_steps=0)).lr == 0.01
    assert Optimizer(parameters(), config(warmup_steps=1)).lr == 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_that_before_clipping_and_the_step_that_after(dtype: torch.dtype) -> None:
    """With epsilon far above the gradient AdamW is linear in it, so clipping to half halves the step."""
    steps = []
    for clip in (10.0, 2.5):
        weight = torch.zeros(2, dtype=dtype, requires_grad=True)
        optimizer = Optimizer({"weight": weight}, config(lr=1e6, eps=1e6, grad_clip=clip, weight_decay=0.0))
        weight.grad = torch.tensor([3.0, 4.0], dtype=dtype)
        assert optimizer.step() == pytest.approx(5.0)
        steps.append(optimizer.masters["weight"].detach().clone())
    assert torch.allclose(steps[1], steps[0] / 2, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_changes_nothing(dtype: torch.dtype, bad: float) -> None:
    ours = parameters(dtype)
    optimizer = Optimizer(ours, config())
    set_gradients(ours, 0)
    optimizer.step()
    before = {name: tensor.detach().clone() for name, tensor in (*ours.items(), *optimizer.tensors().items())}
    set_gradients(ours, 1)
    ours["vector"].grad[2] = bad
    assert not math.isfinite(optimizer.step())
    after = {**ours, **optimizer.tensors()}
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert optimizer.updates == 1
    assert optimizer.not_finite() is None
    assert all(master.grad is None for master in optimizer.masters.values())  # the next batch starts from nothing


def test_a_weight_or_moment_that_is_not_finite_is_named() -> None:
    ours = parameters(torch.float32)
    optimizer = Optimizer(ours, config())
    set_gradients(ours, 0)
    optimizer.step()
    optimizer.tensors()["exp_avg.vector"][1] = math.inf
    assert optimizer.not_finite() == "exp_avg.vector"
    with torch.no_grad():
        ours["vector"][0] = math.nan
    assert optimizer.not_finite() == "vector"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("done", [0, 1, 7])
def test_a_restored_optimiser_goes_on_bit_for_bit(dtype: torch.dtype, done: int) -> None:
    ours = parameters(dtype)
    optimizer = Optimizer(ours, config(warmup_steps=5))
    for step in range(done):
        set_gradients(ours, step)
        optimizer.step()
    saved = {name: tensor.detach().clone() for name, tensor in optimizer.tensors().items()}
    weights = {name: tensor.detach().clone().requires_grad_() for name, tensor in ours.items()}
    again = Optimizer(weights, config(warmup_steps=5))
    again.restore(saved, optimizer.updates)
    for step in range(done, done + 5):
        set_gradients(ours, step)
        set_gradients(weights, step)
        assert again.lr == optimizer.lr
        assert again.step() == optimizer.step()
        for name in SHAPES:
            assert torch.equal(weights[name], ours[name])
            assert torch.equal(again.masters[name], optimizer.masters[name])


def test_masters_are_saved_only_when_they_are_not_the_weights() -> None:
    for dtype, expected in ((torch.float32, set()), (torch.bfloat16, {"master.matrix", "master.vector"})):
        ours = parameters(dtype)
        optimizer = Optimizer(ours, config())
        set_gradients(ours, 0)
        optimizer.step()
        moments = {f"{key}.{name}" for key in ("exp_avg", "exp_avg_sq", "step") for name in SHAPES}
        assert optimizer.tensors().keys() == moments | expected


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    ours = parameters()
    optimizer = Optimizer(ours, config())
    before = ours["vector"].detach().clone()
    ours["matrix"].grad = torch.ones(5, 3)
    optimizer.step()
    assert torch.equal(ours["vector"], before)


# The loss scale of an fp16 body.

FP16 = torch.float16


def scaled_step(optimizer: Optimizer, weight: Tensor, slope: float) -> float:
    """One update on the loss slope * sum(weight), whose fp16 gradient is the slope times the loss scale."""
    optimizer.scaled((weight.float() * slope).sum()).backward()
    return optimizer.step()


def test_fp16_gradients_that_would_vanish_are_kept() -> None:
    """1e-9 is nothing in fp16 (smallest number 6e-8), but 1e-9 * 2^16 is 6.6e-5."""
    weight = torch.zeros(4, dtype=FP16, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config(weight_decay=0.0, eps=1e-15))
    assert scaled_step(optimizer, weight, 1e-9) == pytest.approx(2e-9, rel=1e-2)
    assert optimizer.masters["weight"].tolist() == pytest.approx([-0.01] * 4, rel=1e-3)
    assert torch.tensor(1e-9, dtype=FP16) == 0


def test_the_loss_scale_does_not_change_the_update() -> None:
    """Powers of two cancel exactly, so masters follow an fp32 run that sees the same gradients."""
    fp16, fp32 = parameters(FP16), {name: t.detach().float().requires_grad_() for name, t in parameters(FP16).items()}
    optimizer, reference = Optimizer(fp16, config(grad_clip=1.0)), Optimizer(fp32, config(grad_clip=1.0))
    for step in range(10):
        generator = torch.Generator().manual_seed(step)
        slopes = {name: torch.randn(shape, generator=generator).half() for name, shape in SHAPES.items()}
        for tensors, owner in ((fp16, optimizer), (fp32, reference)):
            owner.scaled(sum((tensors[name].float() * slopes[name].float()).sum() for name in SHAPES) / 64).backward()
        assert optimizer.step() == pytest.approx(reference.step(), rel=1e-6)
    for name in SHAPES:
        assert torch.allclose(optimizer.masters[name], fp32[name], rtol=1e-6, atol=1e-7)
    assert (optimizer.loss_scale, reference.loss_scale) == (2.0**16, 1.0)


def test_an_overflow_skips_the_update_halves_the_scale_and_is_counted() -> None:
    weight = torch.zeros(4, dtype=FP16, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config())
    scaled_step(optimizer, weight, 0.5)
    before, moments = optimizer.masters["weight"].detach().clone(), optimizer.tensors()["exp_avg.weight"].clone()
    assert scaled_step(optimizer, weight, 2.0) == math.inf  # 2 * 65536 is above 65504
    assert (optimizer.loss_scale, optimizer.overflows, optimizer.updates) == (2.0**15, 1, 1)
    assert torch.equal(optimizer.masters["weight"], before)
    assert torch.equal(optimizer.tensors()["exp_avg.weight"], moments)
    assert weight.grad is None
    assert scaled_step(optimizer, weight, 1.0) == pytest.approx(2.0)
    assert (optimizer.overflows, optimizer.updates) == (1, 2)


def test_the_scale_doubles_after_a_hundred_updates_without_overflow() -> None:
    weight = torch.zeros(1, dtype=FP16, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config())
    scales = []
    for _ in range(101):
        scaled_step(optimizer, weight, 0.1)
        scales.append(optimizer.loss_scale)
    assert (scales[98], scales[99], scales[100]) == (2.0**16, 2.0**17, 2.0**17)


def test_a_gradient_that_no_scale_can_save_is_a_bad_number() -> None:
    weight = torch.zeros(2, dtype=FP16, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config())
    for _ in range(16):
        scaled_step(optimizer, weight, math.nan)
    assert optimizer.loss_scale == 1.0
    for _ in range(2):
        assert math.isnan(scaled_step(optimizer, weight, math.nan))
    assert (optimizer.loss_scale, optimizer.overflows, optimizer.updates) == (1.0, 16, 0)
    assert scaled_step(optimizer, weight, 1.0) == pytest.approx(math.sqrt(2))


def test_a_restored_scaler_goes_on_where_it_was() -> None:
    weight = torch.zeros(1, dtype=FP16, requires_grad=True)
    optimizer = Optimizer({"weight": weight}, config())
    for slope in (9.0, 0.1, 0.1):
        scaled_step(optimizer, weight, slope)
    state = json.loads(json.dumps(optimizer.scaler_state()))
    again = Optimizer({"weight": weight.detach().clone().requires_grad_()}, config())
    again.restore_scaler(state)
    assert (again.loss_scale, again.overflows) == (2.0**15, 1)
    assert again.scaler_state() == optimizer.scaler_state()
    plain = Optimizer(parameters(), config())
    plain.restore_scaler(plain.scaler_state())
    assert (plain.scaler_state(), plain.overflows) == ({}, 0)
