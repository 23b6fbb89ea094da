"""Variants whose change cannot act under the study's other settings: legal, and a waste of a run, so the lab says so.

The runs of such a variant still differ from those of the reference, by the timing of their processes: two seeds of noise
would be read as the worth of a part of the recipe.
"""

from __future__ import annotations

from scalerl_mini.ablation.study import Study
from scalerl_mini.config import Config
from scalerl_mini.tasks import load_task


def notes(study: Study) -> list[str]:
    """One line for each kind of change that cannot act, with the variants' names. Raises UserError when the task of such
    a variant cannot be built."""
    configs = {variant.name: study.config(variant, 0) for variant in study.variants}
    return [*_heads(configs), *_resampling(configs)]


def _heads(configs: dict[str, Config]) -> list[str]:
    names = [name for name, c in configs.items() if c.model.dtype == "float32" and c.model.fp32_head != "both"]
    hint = "fp32_head changes nothing while model.dtype is float32; see --set model.dtype=bfloat16"
    return [f"{hint} ({', '.join(names)})"] if names else []


def _resampling(configs: dict[str, Config]) -> list[str]:
    """A prompt is dropped for later epochs, so in the first one nothing is dropped."""
    (_, reference), *others = configs.items()
    threshold = reference.objective.no_positive_resampling
    changed = {name: c for name, c in others if c.objective.no_positive_resampling != threshold}
    idle = {name: c for name, c in changed.items() if _most_drawn(c) <= _training_prompts(c)}
    if not idle:
        return []
    config = next(iter(idle.values()))
    return [
        f"no_positive_resampling changes nothing while no prompt comes twice: training.steps x pipeline.prompts_per_step = "
        f"{_most_drawn(config)}, training prompts {_training_prompts(config)}; take more steps or fewer prompts "
        f"({', '.join(idle)})"
    ]


def _most_drawn(config: Config) -> int:
    """The most prompts that a run can ask for, flat groups that are replaced included."""
    return config.training.steps * config.pipeline.prompts_per_step * (1 + config.objective.refill_rounds)


def _training_prompts(config: Config) -> int:
    return len(load_task(config.task.name, **config.task.options).train)
