"""Order and record of a study, and the studies that are refused before anything is run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scalerl_mini.ablation.study import Study
from scalerl_mini.ablation.variants import Variant
from scalerl_mini.errors import UserError
from tests.ablation.fabricated import study


def test_every_variant_has_a_run_before_any_has_a_second(tmp_path: Path) -> None:
    order = [(variant.name, seed) for variant, seed in study(tmp_path, "a", "b").runs()]
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_the_record_gives_the_study_back_and_may_gain_variants_and_seeds(tmp_path: Path) -> None:
    study(tmp_path, "a", "b", seeds=1).write()
    assert Study.read(tmp_path) == study(tmp_path, "a", "b", seeds=1)
    study(tmp_path, "a", "b", "c", seeds=2).write()
    assert Study.read(tmp_path) == study(tmp_path, "a", "b", "c", seeds=2)
    study(tmp_path, "a", "b", seeds=1).write()
    assert Study.read(tmp_path) == study(tmp_path, "a", "b", "c", seeds=2)


def test_another_study_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = study(tmp_path, "a", "b")
    first.write()
    for other in (
        replace(first, settings=("training.steps=5",)),
        replace(first, recipe="magistral"),
        replace(first, variants=(Variant("a", settings=("training.lr=9e-4",)),)),
    ):
        with pytest.raises(UserError, match="choose another --out"):
            other.write()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"recipe": null}', '{"recipe": 1, "settings": [], "variants": [1]}'])
def test_a_broken_record_is_said_to_be_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UserError, match=r"study\.json is no record of a study"):
        Study.read(tmp_path)


def test_a_folder_without_a_study(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no study in"):
        Study.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (("pipeline.mode=ppo", "pipeline.k=0"), "at least 1"),
        (("objective.length_penalty_limit=40",), "length_penalty_cache"),
        (("objective.constants.eps_high=.3",), "eps_high"),
        (("training.stepz=3",), "stepz"),
    ],
)
def test_a_contradictory_variant_is_named_with_the_key(tmp_path: Path, settings: tuple[str, ...], word: str) -> None:
    found = replace(study(tmp_path, "a"), variants=(Variant("good"), Variant("bad", settings=settings)))
    with pytest.raises(UserError, match=f"variant bad: .*{word}"):
        found.check()


def test_two_names_for_one_configuration_are_refused(tmp_path: Path) -> None:
    same = (Variant("base"), Variant("scalerl", recipe="scalerl"))
    with pytest.raises(UserError, match="base and scalerl are the same"):
        replace(study(tmp_path, "a"), variants=same).check()


def test_the_record_is_plain_json(tmp_path: Path) -> None:
    study(tmp_path, "a", "b").write()
    record = json.loads((tmp_path / "study.json").read_text())
    assert set(record) == {"recipe", "settings", "variants", "seeds"}


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another --out"):
        study(tmp_path / "file" / "study", "a", "b").write()
