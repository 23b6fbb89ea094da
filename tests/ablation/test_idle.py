"""A change that cannot act is said to be none, and only then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scalerl_mini.ablation.idle import notes
from scalerl_mini.ablation.variants import LEAVE_ONE_OUT, Variant
from tests.ablation.fabricated import study

UNIFORM = (Variant("base"), Variant("loo-uniform", settings=LEAVE_ONE_OUT["loo-uniform"]))
PROMPTS = "task.options={train_prompts=100, held_out_prompts=20}"


def test_an_fp32_head_is_no_variant_of_an_fp32_model(tmp_path: Path) -> None:
    variants = (Variant("base"), Variant("loo-fp32", settings=('model.fp32_head="none"',)))
    found = replace(study(tmp_path, "a"), variants=variants)
    (note,) = notes(found)
    assert note.startswith("fp32_head changes nothing while model.dtype is float32")
    assert note.endswith("(loo-fp32)")
    assert notes(replace(found, settings=("model.dtype=bfloat16",))) == []


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        (("training.steps=10",), True),  # 10 x 10 prompts of 100: each comes once
        (("training.steps=11",), False),
        (("training.steps=10", "objective.refill_rounds=1"), False),  # 200 may be drawn
        (("training.steps=10", "objective.zero_variance_filter=false"), True),
    ],
)
def test_a_prompt_that_comes_once_is_not_resampled(tmp_path: Path, settings: tuple[str, ...], idle: bool) -> None:
    base = (PROMPTS, "pipeline.prompts_per_step=10", *settings)
    found = notes(replace(study(tmp_path, "a"), variants=UNIFORM, settings=base))
    assert len(found) == idle
    if idle:
        assert (
            "no prompt comes twice: training.steps x pipeline.prompts_per_step = 100, training prompts 100" in found[0]
        )
        assert found[0].endswith("(loo-uniform)")
        assert "\n" not in found[0]


def test_variants_that_filter_alike_are_not_looked_at(tmp_path: Path) -> None:
    """Their task is not even built."""
    assert notes(replace(study(tmp_path, "a", "b"), settings=("task.name=nowhere:Nothing",))) == []
