"""Any settings of plausible values over any recipe: a configuration that breaks no rule, or a refusal with key and reason.

`test_config_fuzz` throws rubbish at the configuration; here each value is of the right kind and near its bounds, so what is
wrong is mostly the combination. The rules are written down once more, apart from the code that enforces them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.config_groups import Group
from scalerl_mini.config_groups.learning import LOSS_CONSTANTS
from scalerl_mini.contradictions import NO_SUCH_KEY
from scalerl_mini.errors import UserError
from scalerl_mini.recipes import recipe_names

GROUPS = ("model", "rollout", "objective", "pipeline", "training", "evaluation")
CONSTANTS = sorted({name for constants in LOSS_CONSTANTS.values() for name in constants})
LONGEST_LINE = 1000


def keys(prefix: str, group: type[Group]) -> dict[str, FieldInfo]:
    """Every key below a group, with groups inside it."""
    found: dict[str, FieldInfo] = {}
    for name, field in group.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Group):
            found |= keys(f"{prefix}.{name}", inner)
        else:
            found[f"{prefix}.{name}"] = field
    return found


def bounds(field: FieldInfo) -> list[float]:
    return [
        value
        for rule in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if (value := getattr(rule, name, None)) is not None
    ]


def values(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Values of a key's own kind, some just outside its bounds."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is str:
        return st.sampled_from(["cpu", "arithmetic", "builtin:tiny-adder", "</think>"])
    edges = bounds(field)
    whole = st.integers(0, 80) | st.sampled_from([int(edge) + step for edge in (*edges, 51) for step in (-1, 0, 1)])
    fraction = st.sampled_from([0.0, 0.2, 0.9, 1.0, 2.0, 3.0, *edges])
    if kind is int:
        return whole
    if kind is float:
        return fraction
    if "None" in str(kind):  # no_positive_resampling
        return st.booleans() | fraction
    if "tuple" in str(kind):
        return st.lists(fraction, min_size=2, max_size=2)
    return st.just({})  # options of a task, constants of the loss: those are set one by one


KNOWN = {path: field for name in GROUPS for path, field in keys(name, Config.model_fields[name].annotation).items()}  # type: ignore[arg-type]
known = st.sampled_from(sorted(KNOWN)).flatmap(lambda key: st.tuples(st.just(key), values(KNOWN[key])))
constant = st.tuples(
    st.sampled_from([f"objective.constants.{name}" for name in CONSTANTS]), st.sampled_from([0.0, 0.2, 5])
)
absent = st.tuples(st.sampled_from([f"{g}.{key}" for g, names in NO_SUCH_KEY.items() for key in names]), st.just(0.9))
some_keys = st.lists(known | known | known | constant | absent, min_size=1, max_size=7)

# What no accepted configuration may be.
NEVER: dict[str, Callable[[Config], bool]] = {
    "phases of no step": lambda c: c.pipeline.mode == "ppo" and c.pipeline.k == 0,
    "half a length penalty": lambda c: bool(c.objective.length_penalty_limit) != bool(c.objective.length_penalty_cache),
    "a penalty that begins before 0": lambda c: c.objective.length_penalty_cache > c.objective.length_penalty_limit,
    "a penalty behind the cut": lambda c: c.objective.length_penalty_limit > c.rollout.max_new_tokens,
    "a budget upside down": lambda c: c.rollout.interruption.min_tokens > c.rollout.interruption.max_tokens,
    "a ratio that counts twice": lambda c: c.objective.correction == "truncate" and c.objective.loss != "reinforce",
    "token masks with one ratio": lambda c: c.objective.correction == "mask" and c.objective.loss == "gspo",
    "a cap of nothing": lambda c: c.objective.correction == "none" and c.objective.correction_cap != 2.0,
    "a refill of what is not dropped": lambda c: bool(c.objective.refill_rounds) and not c.objective.zero_variance_filter,
    "constants of another loss": lambda c: set(c.objective.constants) != set(LOSS_CONSTANTS[c.objective.loss]),
    "a clip of nothing": lambda c: not all(value > 0 for value in c.objective.constants.values()),
    "a downstream budget that nothing enforces": lambda c: (
        bool(c.evaluation.downstream.thinking_tokens) and not c.rollout.interruption.enabled
    ),
}  # fmt: skip


def written(key: str, value: Any) -> str:
    return f"{key}={tomli_w.dumps({'v': value}).partition('=')[2].strip()}" if value != {} else f"{key}={{}}"


def accepted(recipe: str | None, pairs: list[tuple[str, Any]]) -> bool:
    """Whether these settings are a configuration; asserts that it breaks no rule, or that the refusal names one of them."""
    try:
        config = load_config(None, tuple(written(key, value) for key, value in pairs), recipe)
    except UserError as error:
        line = str(error)
        assert "\n" not in line
        assert 30 < len(line) < LONGEST_LINE
        assert any(key.rpartition(".")[2] in line for key, _ in pairs), f"{line} names none of {pairs}"
        return False
    assert [name for name, broken in NEVER.items() if broken(config)] == []
    assert load_config(None, tuple(written(key, value) for key, value in pairs), recipe) == config
    assert dump_toml(config)
    return True


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(recipe=st.none() | st.sampled_from(recipe_names()), pairs=some_keys)
def test_settings_over_a_recipe(recipe: str | None, pairs: list[tuple[str, Any]]) -> None:
    accepted(recipe, pairs)


def test_the_fuzz_sees_both_sides() -> None:
    """A fair part of what it makes is accepted, and a fair part refused."""
    seen: list[bool] = []

    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    @given(pairs=some_keys)
    def count(pairs: list[tuple[str, Any]]) -> None:
        seen.append(accepted("scalerl", pairs))

    count()
    assert 0.1 < sum(seen) / len(seen) < 0.9


@pytest.mark.parametrize("rule", NEVER)
def test_each_rule_can_be_broken(rule: str) -> None:
    """By a tree that is built without the checks; else the rule would hold of everything."""
    config = Config()
    group = config.objective.model_copy
    broken = {
        "phases of no step": {"pipeline": config.pipeline.model_copy(update={"mode": "ppo", "k": 0})},
        "half a length penalty": {"objective": group(update={"length_penalty_limit": 5})},
        "a penalty that begins before 0": {"objective": group(update={"length_penalty_cache": 5})},
        "a penalty behind the cut": {"objective": group(update={"length_penalty_limit": 500})},
        "a ratio that counts twice": {"objective": group(update={"correction": "truncate"})},
        "token masks with one ratio": {"objective": group(update={"correction": "mask", "loss": "gspo"})},
        "a cap of nothing": {"objective": group(update={"correction_cap": 3.0})},
        "a refill of what is not dropped": {"objective": group(update={"refill_rounds": 1, "zero_variance_filter": False})},
        "constants of another loss": {"objective": group(update={"loss": "grpo"})},
        "a clip of nothing": {"objective": group(update={"constants": {"eps_max": 0.0}})},
    }  # fmt: skip
    interruption = config.rollout.interruption.model_copy
    broken["a budget upside down"] = {
        "rollout": config.rollout.model_copy(update={"interruption": interruption(update={"min_tokens": 43})})
    }
    broken["a downstream budget that nothing enforces"] = {
        "rollout": config.rollout.model_copy(update={"interruption": interruption(update={"enabled": False})}),
        "evaluation": config.evaluation.model_copy(
            update={"downstream": config.evaluation.downstream.model_copy(update={"thinking_tokens": 9})}
        ),
    }
    assert NEVER[rule](config.model_copy(update=broken[rule]))
    assert not NEVER[rule](config)
