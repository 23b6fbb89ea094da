"""Runs that train adapters: what generators see, what is saved, and that a resumed run cannot be told from another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.training.resuming import newest_checkpoint
from tests.fakes import uniform_model
from tests.training.loop import Loop
from tests.training.test_resume import kill_after, stop_after, timeless

pytest.importorskip("peft")
MakeLoop = Callable[..., Loop]
LORA = ("model.lora_rank=4", "model.lora_alpha=8.0", "runtime.checkpoint_every=2")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All but uniform, as the fake engine samples: behind a head of zeros no gradient would reach the adapters."""
    folder = uniform_model(tmp_path_factory.mktemp("almost-uniform"))
    policy = Policy.load(folder)
    torch.manual_seed(0)
    torch.nn.init.normal_(policy.head_weight, std=1e-5)
    policy.save(folder)
    return folder


def published(loop: Loop) -> dict[str, np.ndarray]:
    return {name: view.copy() for name, view in loop.trainer.weights.pull().items()}


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def test_generators_get_the_merged_weights_and_the_frozen_ones_stay(make_loop: MakeLoop) -> None:
    loop = make_loop(*LORA)
    frozen = loop.weights
    first = published(loop)
    assert loop.run() is None
    assert same(loop.weights, frozen)
    last = published(loop)
    moved = {name for name in last if not np.array_equal(first[name], last[name])}
    assert moved == set(loop.trainer.policy.adapted)
    for generator in loop.generators:
        generator.load()
        assert same(generator.weights.pull(), last)


def test_a_checkpoint_is_the_merged_model(make_loop: MakeLoop) -> None:
    loop = make_loop(*LORA)
    loop.run()
    saved = Policy.load(newest_checkpoint(loop.folder.path))
    for name, tensor in saved.named_tensors().items():
        assert torch.equal(tensor, loop.trainer.policy.merged(name, loop.trainer.policy.named_tensors()[name])), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("cut", "step"), [(stop_after, 3), (kill_after, 5)])
def test_a_resumed_synchronous_run_ends_bit_identical(
    make_loop: MakeLoop, cut: Callable[[Loop, int], None], step: int, dtype: str
) -> None:
    settings = (*LORA, "pipeline.k=0", f"model.dtype={dtype}")
    whole = make_loop(*settings, folder="whole")
    whole.run()
    first = make_loop(*settings)
    cut(first, step)
    try:
        first.run()
    except SystemExit:
        first.close()
    second = make_loop(*settings, resume=True)
    assert second.trainer.policy.version in (step, step - 1)
    second.run()
    assert same(published(second), published(whole))
    for name, tensor in whole.trainer.policy.trained_tensors().items():
        assert torch.equal(second.trainer.policy.trained_tensors()[name], tensor), name
    if cut is stop_after:
        assert timeless(second.steps) == timeless(whole.steps)


def test_frozen_weights_cost_two_passes_of_three(make_loop: MakeLoop) -> None:
    assert make_loop(*LORA).trainer.meter.passes == 2
    assert make_loop(folder="full").trainer.meter.passes == 3
