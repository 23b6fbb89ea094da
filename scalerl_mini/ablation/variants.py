"""What an ablation changes: a variant is a name and the settings laid over the base configuration.

The leave-one-outs are those of the paper (section 5): each takes one part of ScaleRL away, or puts the rival in its place.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from scalerl_mini.config import Config
from scalerl_mini.errors import UserError
from scalerl_mini.recipes import recipe_names

LEAVE_ONE_OUT: dict[str, tuple[str, ...]] = {
    "loo-plan": ('objective.advantage_norm="prompt"',),
    "loo-lp": ("rollout.interruption.enabled=false",),  # with a length penalty instead, see `_length_penalty`
    "loo-batch": ("objective.zero_variance_filter=false",),
    "loo-8op": ('pipeline.mode="ppo"', "pipeline.k=8"),
    "loo-fp32": ('model.fp32_head="none"',),
    "loo-savg": ('objective.aggregation="sample"',),
    "loo-dapo": ('objective.loss="dapo"',),
    "loo-uniform": ("objective.no_positive_resampling=false",),
}
OTHERS = {
    "no-is": ('objective.loss="reinforce"',)
}  # no importance weights at all; not one of the paper's leave-one-outs
SETS = ("loo", "recipes")


@dataclass(frozen=True)
class Variant:
    """recipe: in place of the base recipe, or None to keep that. settings: `key=value`, laid over everything else."""

    name: str
    recipe: str | None = None
    settings: tuple[str, ...] = ()


def parse_variants(
    names: tuple[str, ...], grid: tuple[str, ...], own: tuple[str, ...], base: Config
) -> tuple[Variant, ...]:
    """Variants by name ("base", "loo", "recipes", "loo-plan", a recipe's name), by grid ("pipeline.k=1,4,8"; several are
    crossed), and your own ("NAME: key=value key=value").

    Raises UserError for an unknown name, a grid without values, a name used twice, or fewer than two variants.
    """
    found = [_named(name, base) for name in itertools.chain.from_iterable(map(_expand, names))]
    found += [Variant(_grid_name(settings), settings=settings) for settings in _crossed(grid)]
    found += [_own(text) for text in own]
    for name, same in itertools.groupby(sorted(variant.name for variant in found)):
        if len(list(same)) > 1:
            raise UserError(f"variant {name!r} is given twice; leave one out or name it otherwise")
    if len(found) < 2:
        raise UserError("an ablation compares at least two variants; give --variants base,loo or --grid KEY=A,B")
    return tuple(found)


def _expand(name: str) -> list[str]:
    if name == "loo":
        return list(LEAVE_ONE_OUT)
    return recipe_names() if name == "recipes" else [name]


def _named(name: str, base: Config) -> Variant:
    if name == "base":
        return Variant(name)
    if name in LEAVE_ONE_OUT:
        return Variant(name, settings=LEAVE_ONE_OUT[name] + (_length_penalty(base) if name == "loo-lp" else ()))
    if name in OTHERS:
        return Variant(name, settings=OTHERS[name])
    if name in recipe_names():
        return Variant(name, recipe=name)
    known = ", ".join(("base", *SETS, *LEAVE_ONE_OUT, *OTHERS, *recipe_names()))
    raise UserError(f"variant {name!r} is unknown; known: {known} (or use --grid KEY=A,B)")


def _length_penalty(base: Config) -> tuple[str, ...]:
    """L_max at the completion limit, L_cache a seventh of it, as 2k of 14k in the paper."""
    limit = base.rollout.max_new_tokens
    return f"objective.length_penalty_limit={limit}", f"objective.length_penalty_cache={max(1, limit // 7)}"


def _crossed(grid: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return itertools.product(*map(_axis, grid)) if grid else iter(())


def _axis(text: str) -> list[str]:
    key, separator, values = (part.strip() for part in text.partition("="))
    parts = [value.strip() for value in values.split(",")]
    if not separator or not key or not all(parts):
        raise UserError(f"--grid {text!r}: write it as KEY=A,B,C, for example pipeline.k=1,4,8")
    return [f"{key}={part}" for part in parts]


def _grid_name(settings: tuple[str, ...]) -> str:
    """("pipeline.k=4", "training.lr=2e-4") -> "k=4,lr=2e-4"; it becomes the name of a folder."""
    pairs = (setting.partition("=") for setting in settings)
    name = ",".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)
    return re.sub(r"[^\w.=,+-]+", "_", name)


def _own(text: str) -> Variant:
    name, separator, settings = text.partition(":")
    try:
        words = tuple(shlex.split(settings))
    except ValueError:
        words = ()
    if (
        not separator
        or not re.fullmatch(r"\w[\w.=,+-]*", name.strip())
        or not words
        or not all("=" in word for word in words)
    ):
        raise UserError(
            f'--variant {text!r}: write it as "NAME: KEY=VALUE KEY=VALUE"; names are letters, digits, . = - +'
        )
    return Variant(name.strip(), settings=words)
