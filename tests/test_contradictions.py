"""Settings that make no sense together, or that this package must not have: each refused with its keys and the reason."""

from __future__ import annotations

import pytest

from scalerl_mini.config import load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training.preflight import preflight

CONTRADICTIONS = [
    # PPO-off-policy-k takes k steps a phase
    (("pipeline.mode=ppo", "pipeline.k=0"), r"pipeline .*mode 'ppo' takes k steps a phase, so k must be at least 1"),
    # a penalty with half its constants, or beyond where completions are cut
    (("objective.length_penalty_cache=5",), r"objective .*needs both length_penalty_limit and length_penalty_cache"),
    (("objective.length_penalty_limit=40",), r"objective .*needs both length_penalty_limit and length_penalty_cache"),
    (
        ("objective.length_penalty_limit=40", "objective.length_penalty_cache=41"),
        r"length_penalty_cache must not be above length_penalty_limit",
    ),
    (
        ("objective.length_penalty_limit=52", "objective.length_penalty_cache=5"),
        r"length_penalty_limit = 52 is above rollout\.max_new_tokens = 51.*lower it to 51 or less",
    ),
    # an interruption that comes after the cut, or never can
    (
        ("rollout.interruption.max_tokens=60",),
        r"rollout\.max_new_tokens = 51 leaves no room for an answer after interruption\.max_tokens = 60",
    ),
    (("rollout.interruption.min_tokens=43",), r"min_tokens \(43\) must not be above max_tokens \(42\)"),
    # sampling from another distribution than the one that is scored
    (("rollout.top_p=0.9",), r"rollout\.top_p in --set does not exist: .*full distribution.*ratio would be wrong"),
    (("rollout.top_k=20",), r"rollout\.top_k in --set does not exist: .*full distribution"),
    (("rollout.min_p=0.1",), r"rollout\.min_p in --set does not exist: .*full distribution"),
    # the same correction twice, of another kind of ratio, or a constant of none
    (("objective.correction=truncate",), r"counts the ratio twice, loss 'cispo' already carries it"),
    (("objective.loss=gspo", "objective.correction=mask"), r"'mask' acts on token ratios, .*'gspo' has one"),
    (("objective.correction_cap=3.0",), r"correction_cap = 3 caps nothing while objective\.correction = 'none'"),
    (("objective.constants.eps=0.2",), r"loss 'cispo' has no constant 'eps'; it has: eps_max"),
    # adapters that are not there, 8-bit moments that divide by nothing
    (("model.lora_alpha=16.0",), r"model\.lora_alpha does nothing while model\.lora_rank = 0"),
    (("training.optimizer=adamw_8bit",), r"training\.eps = 1e-10 is too small .*set it to 1e-08 or more"),
    # replacing flat groups that are not dropped
    (("objective.refill_rounds=2", "objective.zero_variance_filter=false"), r"needs zero_variance_filter = true"),
    # a downstream budget that nothing would enforce, does not fit, or a downstream task that is trained
    (
        ("evaluation.downstream.thinking_tokens=60", "rollout.interruption.enabled=false"),
        r"downstream\.thinking_tokens = 60 bounds nothing while rollout\.interruption\.enabled = false",
    ),
    (
        (
            "evaluation.downstream.prompts=40",
            "evaluation.downstream.options={min_digits=2, max_digits=2, train_prompts=5, held_out_prompts=40}",
        ),
        r"evaluation\.downstream: \d+ of its 40 prompts are training prompts of task arithmetic",
    ),
    (
        (
            "evaluation.downstream.prompts=9",
            "evaluation.downstream.options={min_digits=7, max_digits=7}",
            "evaluation.downstream.thinking_tokens=60",
        ),
        r"evaluation\.downstream, whose keys.*rollout\.max_new_tokens = 51 leaves no room",
    ),
    (
        (
            "evaluation.downstream.prompts=9",
            "evaluation.downstream.options={min_digits=7, max_digits=7}",
            "evaluation.downstream.max_new_tokens=250",
        ),
        r"evaluation\.downstream, whose keys.*the model has 256",
    ),
    (("evaluation.downstream.prompts=1001",), r"evaluation\.downstream\.prompts = 1001 but task arithmetic holds out"),
    (("evaluation.downstream.prompts=5", "evaluation.downstream.name=chess"), r"'chess' is unknown"),
    # a body of low precision without fp32 masters
    (("model.dtype=float16", "model.fp32_masters=false"), r"model\.fp32_masters .*always keeps fp32 masters"),
]


@pytest.mark.parametrize(("settings", "message"), CONTRADICTIONS, ids=lambda value: value[0] if value else "")
def test_a_contradiction_is_refused_with_key_and_reason(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        preflight(load_config(None, settings))
    assert "\n" not in str(caught.value)


AGREEING = [
    ("objective.length_penalty_limit=51", "objective.length_penalty_cache=7"),
    ("objective.loss=reinforce", "objective.correction=truncate", "objective.correction_cap=3.0"),
    ("pipeline.mode=ppo", "pipeline.k=8", "objective.refill_rounds=2"),
    ("model.dtype=float16", "model.fp32_head=none"),
    ("evaluation.downstream.prompts=9", "evaluation.downstream.options={min_digits=7, max_digits=7}"),
]


@pytest.mark.parametrize("settings", AGREEING, ids=lambda value: value[0])
def test_what_is_just_possible_is_not_refused(settings: tuple[str, ...]) -> None:
    load_config(None, settings)
