"""What each variant changes, and which sets of variants are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.ablation.study import Study
from scalerl_mini.ablation.variants import LEAVE_ONE_OUT, Variant, parse_variants
from scalerl_mini.config import load_config
from scalerl_mini.errors import UserError
from scalerl_mini.recipes import flatten, recipe_names

BASE = load_config(recipe="scalerl")

CHANGES: dict[str, dict[str, Any]] = {
    "loo-plan": {"objective.advantage_norm": "prompt"},
    "loo-lp": {
        "rollout.interruption.enabled": False,
        "objective.length_penalty_limit": 51,
        "objective.length_penalty_cache": 7,
    },
    "loo-batch": {"objective.zero_variance_filter": False},
    "loo-8op": {"pipeline.mode": "ppo"},
    "loo-fp32": {"model.fp32_head": "none"},
    "loo-savg": {"objective.aggregation": "sample"},
    "loo-dapo": {
        "objective.loss": "dapo",
        "objective.constants.eps_max": None,
        "objective.constants.eps_low": 0.2,
        "objective.constants.eps_high": 0.26,
    },
    "loo-uniform": {"objective.no_positive_resampling": False},
    "no-is": {"objective.loss": "reinforce", "objective.constants.eps_max": None},
}


def parse(*names: str, grid: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> tuple[Variant, ...]:
    return parse_variants(names, grid, own, BASE)


def resolved(variant: Variant, settings: tuple[str, ...] = ()) -> dict[str, Any]:
    """The configuration of a variant's run, flat."""
    study = Study(Path("nowhere"), "scalerl", settings, (variant,), (0,))
    return flatten(study.config(variant, 0).model_dump())


@pytest.mark.parametrize("name", CHANGES)
def test_a_leave_one_out_changes_exactly_its_keys(name: str) -> None:
    before, after = flatten(BASE.model_dump()), resolved(parse("base", name)[1])
    changed = {key: after.get(key) for key in before | after if before.get(key) != after.get(key)}
    assert changed == CHANGES[name]


def test_the_sets() -> None:
    assert [v.name for v in parse("base", "loo")] == ["base", *LEAVE_ONE_OUT]
    assert len(LEAVE_ONE_OUT) == 8
    assert [v.name for v in parse("recipes")] == recipe_names()


def test_settings_win_over_every_recipe() -> None:
    for variant in parse("recipes"):
        after = resolved(variant, ("training.lr=2e-4", "pipeline.k=3", "seed=5"))
        assert (after["training.lr"], after["pipeline.k"], after["seed"]) == (2e-4, 3, 0)


def test_recipes_differ_only_in_what_their_tables_name() -> None:
    """The same model, batch, lengths, optimiser and evaluation for all: equal conditions."""
    whole = [resolved(variant) for variant in parse("recipes")]
    keys = {key for one in whole for key in one}
    differing = {key for key in keys if len({repr(one.get(key)) for one in whole}) > 1}
    assert {key.rpartition(".")[0] for key in differing} <= {"model", "objective", "objective.constants", "pipeline"}
    assert not differing & {"model.name", "model.dtype", "pipeline.prompts_per_step", "pipeline.k"}


def test_a_grid_is_crossed_and_named_by_its_keys() -> None:
    found = parse(grid=("pipeline.k=1, 4", "training.lr=1e-4,0.0002"))
    assert [v.name for v in found] == ["k=1,lr=1e-4", "k=1,lr=0.0002", "k=4,lr=1e-4", "k=4,lr=0.0002"]
    assert found[1].settings == ("pipeline.k=1", "training.lr=0.0002")


def test_a_grid_over_folders_keeps_the_name_a_single_folder() -> None:
    names = [v.name for v in parse(grid=("model.name=builtin:tiny-adder,models/micro.v2",))]
    assert names == ["name=builtin_tiny-adder", "name=models_micro.v2"]


def test_a_variant_of_ones_own() -> None:
    found = parse("base", own=("short: rollout.interruption.min_tokens=26 rollout.interruption.max_tokens=26",))
    assert found[1].name == "short"
    assert resolved(found[1])["rollout.interruption.min_tokens"] == 26


@pytest.mark.parametrize(
    ("names", "grid", "own", "word"),
    [
        (("base", "loo-typo"), (), (), "loo-typo"),
        (("base",), (), (), "at least two"),
        (("loo", "loo-savg"), (), (), "given twice"),
        (("base",), ("pipeline.k",), (), "KEY=A,B"),
        (("base",), ("pipeline.k=",), (), "KEY=A,B"),
        (("base",), ("pipeline.k=1,,2",), (), "KEY=A,B"),
        (("base",), ("=1,2",), (), "KEY=A,B"),
        (("base",), ("pipeline.k=1,1",), (), "given twice"),
        (("base",), (), ("base: pipeline.k=2",), "given twice"),
        (("base",), (), ("pipeline.k=2",), "NAME: KEY=VALUE"),
        (("base",), (), ("../x: pipeline.k=2",), "NAME: KEY=VALUE"),
        (("base",), (), ("x: pipeline.k 2",), "NAME: KEY=VALUE"),
        (("base",), (), ("x: 'pipeline.k=2",), "NAME: KEY=VALUE"),
        (("base",), (), ("x:",), "NAME: KEY=VALUE"),
    ],
)
def test_what_cannot_be_read_is_refused(names: Any, grid: Any, own: Any, word: str) -> None:
    with pytest.raises(UserError, match=word):
        parse(*names, grid=grid, own=own)
