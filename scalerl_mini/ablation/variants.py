"""What an ablation changes: a variant is a name and the settings laid over the base configuration.

The leave-one-outs are those of the paper (section 5): each takes one part of ScaleRL away, or puts the rival in its place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from scalerl_mini.config import Config
from scalerl_mini.errors import UserError
from scalerl_mini.recipes import recipe_names

LEAVE_ONE_OUT: dict[str, tuple[str, ...]] = {
    "loo-plan": ('objective.advantage_norm="prompt"',),
    "loo-lp": ("rollout.interruption.enabled=false",),  # with a length penalty, see `variant_settings`
    "loo-batch": ("objective.zero_variance_filter=false",),
    "loo-8op": ('pipeline.mode="ppo"', "pipeline.k=8"),
    "loo-fp32": ('model.fp32_head="none"',),
    "loo-savg": ('objective.aggregation="sample"',),
    "loo-dapo": ('objective.loss="dapo"',),
    "loo-uniform": ("objective.no_positive_resampling=false",),
    "no-is": ('objective.loss="reinforce"',),  # not in the paper's list: no importance weights at all
}
SETS = ("loo", "recipes")


@dataclass(frozen=True)
class Variant:
    """recipe: laid over the defaults, or None for the base recipe. settings: `key=value`, laid over everything else."""

    name: str
    recipe: str | None = None
    settings: tuple[str, ...] = ()


def parse_variants(names: tuple[str, ...], grid: tuple[str, ...], base: Config) -> list[Variant]:
    """Variants by name ("base", "loo", "recipes", "loo-plan", a recipe's name) and by grid ("pipeline.k=1,4,8").

    Several grids are crossed. Raises UserError for an unknown name or a grid without values.
    """
    variants: dict[str, Variant] = {}
    for name in itertools.chain.from_iterable(_expand(name) for name in names):
        variants[name] = _named(name, base)
    for settings in itertools.product(*(_grid_axis(axis) for axis in grid)) if grid else ():
        name = ",".join(setting.rpartition(".")[2] for setting in settings)
        variants[name] = Variant(name, settings=settings)
    if len(variants) < 2:
        raise UserError("an ablation compares at least two variants; give --variants base,loo or --grid KEY=A,B")
    return list(variants.values())


def _expand(name: str) -> list[str]:
    if name == "loo":
        return ["base", *LEAVE_ONE_OUT]
    return recipe_names() if name == "recipes" else [name]


def _named(name: str, base: Config) -> Variant:
    if name == "base":
        return Variant(name)
    if name in LEAVE_ONE_OUT:
        return Variant(name, settings=LEAVE_ONE_OUT[name] + (_length_penalty(base) if name == "loo-lp" else ()))
    if name in recipe_names():
        return Variant(name, recipe=name)
    known = ", ".join(("base", *SETS, *LEAVE_ONE_OUT, *recipe_names()))
    raise UserError(f"variant {name!r} is unknown; known: {known} (or use --grid KEY=A,B)")


def _length_penalty(base: Config) -> tuple[str, ...]:
    """L_max at the completion limit, L_cache a seventh of it, as 2k of 14k in the paper."""
    limit = base.rollout.max_new_tokens
    return f"objective.length_penalty_limit={limit}", f"objective.length_penalty_cache={max(1, limit // 7)}"


def _grid_axis(axis: str) -> list[str]:
    key, separator, values = axis.partition("=")
    parts = [value.strip() for value in values.split(",") if value.strip()]
    if not separator or not key.strip() or not parts:
        raise UserError(f"--grid {axis!r}: write it as KEY=A,B,C, for example pipeline.k=1,4,8")
    return [f"{key.strip()}={part}" for part in parts]
