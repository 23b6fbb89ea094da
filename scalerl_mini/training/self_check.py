"""The start-up self-check: before any update, sampled and rescored log-probabilities must agree.

Same weights, same temperature, same head: what is left is rounding. An fp32 body that disagrees has a fault (a temperature
forgotten on one side, a head that was not refreshed, attention past a boundary), and the run ends. A bf16 or fp16 body
disagrees by its rounding, which the importance ratio then carries through the whole run; a wide gap is worth a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalerl_mini.config_groups import ModelConfig
from scalerl_mini.errors import WouldComeAgain

FP32_GAP = 1e-3  # largest |log-probability gap| of an fp32 body; measured gaps are about 1e-5
FP32_MEAN_GAP = 1e-4  # mean gap of an fp32 mixture of experts, where single tokens may be routed differently
WIDE_GAP = 0.01  # mean |log-probability gap| that moves ratios by a percent, without any change of the weights


def self_check(metrics: Mapping[str, float | None], model: ModelConfig, experts: bool = False) -> None:
    """Check the metrics of the first update; `experts`: the model is a mixture.

    Raises WouldComeAgain when the sides of an fp32 run disagree.
    """
    what, bound, key = (
        ("a", FP32_GAP, "logprob_gap_max") if not experts else ("the mean", FP32_MEAN_GAP, "logprob_gap_mean")
    )
    gap = metrics[key]
    if model.dtype == "float32" and gap is not None and gap > bound:
        raise WouldComeAgain(
            f"generator and trainer disagree before the first update: {what} log-probability differs by {gap:.4f} where "
            f"less than {bound:g} is expected"
        )


def self_check_lines(row: Mapping[str, Any], model: ModelConfig) -> list[str]:
    """What the console says of the first trained step: the gap of the chosen precision, and a warning when it is wide."""
    mean, largest = row["logprob_gap_mean"], row["logprob_gap_max"]
    chosen = f"{model.dtype} body, fp32 head on {_SIDES[model.fp32_head]}"
    lines = [
        f"  self-check ({chosen}): sampled and rescored log-probabilities differ by {mean:.1e}, at most {largest:.1e}"
    ]
    if mean > WIDE_GAP:
        remedy = "model.dtype = float16 or float32" if model.fp32_head == "both" else "model.fp32_head = both"
        lines.append(f"  warning: that is wide enough to act on the importance ratio; try {remedy}")
    return lines


_SIDES = {"both": "both sides", "generator": "the generator's side", "trainer": "the trainer's side", "none": "no side"}
