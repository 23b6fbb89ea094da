"""The estimate of the trainer's memory follows the settings that change it."""

from __future__ import annotations

import re

from scalerl_mini.config import load_config
from scalerl_mini.training.memory import estimate
from tests.policy.tiny import Tiny, tiny_policy


def activations(*settings: str) -> float:
    """MiB of activations in the estimate of a model of eight layers."""
    line = estimate(tiny_policy(Tiny(layers=8)), load_config(None, settings), prompt_tokens=20)
    found = re.search(r"activations ([\d.]+)", line)
    assert found
    return float(found[1])


def test_gradient_checkpointing_keeps_the_inputs_of_all_layers_and_the_inside_of_one() -> None:
    ratio = activations("training.gradient_checkpointing=true") / activations()
    assert abs(ratio - (8 + 24) / (8 * 24)) < 0.01


def test_activations_grow_with_the_micro_batch() -> None:
    half, whole = (activations(f"training.micro_batch_tokens={tokens}") for tokens in (2048, 4096))
    assert abs(whole / half - 2) < 0.02
