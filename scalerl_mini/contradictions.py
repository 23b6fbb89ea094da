"""Settings that are each valid and make no sense together: refused with the keys and the reason, before anything starts.

What can be judged within one group is checked there (`config_groups`); what needs the model or the task, in
`training.preflight`. Here are the rules between groups, and the reasons why some keys do not exist at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalerl_mini.config import Config

_FULL = (
    "completions are sampled from the full distribution: the trainer scores every token under it, so with {key} the "
    "importance ratio would be wrong; rollout.temperature is applied on both sides"
)
LEAST_EPS_8BIT = 1e-8
NO_SUCH_KEY = {
    "rollout": {key: _FULL.format(key=key) for key in ("top_p", "top_k", "min_p", "repetition_penalty")},
    "model": {
        "fp32_masters": "the optimiser always keeps fp32 masters; at these learning rates a 16-bit weight would not move"
    },
}


def contradiction(config: Config) -> str | None:
    """The first rule that the configuration breaks, in one line; None when there is none."""
    return next((line for rule in RULES if (line := rule(config))), None)


def _penalty_beyond_the_limit(config: Config) -> str | None:
    penalty, limit = config.objective.length_penalty_limit, config.rollout.max_new_tokens
    if penalty <= limit:
        return None
    return (
        f"objective.length_penalty_limit = {penalty} is above rollout.max_new_tokens = {limit}: completions are cut before "
        f"the penalty is full; lower it to {limit} or less"
    )


def _cap_without_correction(config: Config) -> str | None:
    objective = config.objective
    default = type(objective).model_fields["correction_cap"].default
    if objective.correction != "none" or objective.correction_cap == default:
        return None
    return (
        f"objective.correction_cap = {objective.correction_cap:g} caps nothing while objective.correction = 'none'; set "
        "objective.correction, or objective.constants.eps_max for CISPO's own cap"
    )


def _masks_within_a_sequence_ratio(config: Config) -> str | None:
    if config.objective.loss != "gspo" or config.objective.correction == "none":
        return None
    return (
        f"objective.correction = {config.objective.correction!r} acts on token ratios, and objective.loss = 'gspo' has one "
        "ratio for a whole completion; set objective.correction to 'none'"
    )


def _budget_without_interruption(config: Config) -> str | None:
    budget = config.evaluation.downstream.thinking_tokens
    if not budget or config.rollout.interruption.enabled:
        return None
    return (
        f"evaluation.downstream.thinking_tokens = {budget} bounds nothing while rollout.interruption.enabled = false; set it"
        " to 0, or enable the interruption"
    )


def _adapters_without_rank(config: Config) -> str | None:
    fields = type(config.model).model_fields
    changed = [key for key in ("lora_alpha", "lora_targets") if getattr(config.model, key) != fields[key].default]
    if config.model.lora_rank or not changed:
        return None
    return f"model.{changed[0]} does nothing while model.lora_rank = 0; set a rank, or leave it away"


def _tiny_epsilon_of_8_bit_moments(config: Config) -> str | None:
    training = config.training
    if training.optimizer == "adamw" or training.eps >= LEAST_EPS_8BIT:
        return None
    return (
        f"training.eps = {training.eps:g} is too small for training.optimizer = 'adamw_8bit': a second moment that is "
        f"rounded to 0 would make a huge step; set it to {LEAST_EPS_8BIT:g} or more"
    )


RULES: tuple[Callable[[Config], str | None], ...] = (
    _penalty_beyond_the_limit,
    _cap_without_correction,
    _masks_within_a_sequence_ratio,
    _budget_without_interruption,
    _adapters_without_rank,
    _tiny_epsilon_of_8_bit_moments,
)
