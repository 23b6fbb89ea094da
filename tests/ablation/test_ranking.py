"""Ranking of fabricated runs: the law is known, so what must be decided, and what must not, is known as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.ablation.figures import draw_curves, draw_efficiency
from scalerl_mini.ablation.ranking import Ranking, pass_rate_at, rank, write
from scalerl_mini.errors import UserError
from tests.ablation.fabricated import ended_run, study

LAWS: dict[str, dict[str, Any]] = {"base": {}, "same": {}, "low": {"a": 0.6}, "slow": {"b": 1.1, "c_mid": 1.4e5}}


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Ranking:
    folder = tmp_path_factory.mktemp("study")
    for number, (name, law) in enumerate(LAWS.items()):
        for seed in range(2):
            ended_run(folder / name / f"seed-{seed}", 10 * number + seed, **law)
    return rank(study(folder, *LAWS))


def test_a_lower_ceiling_is_decided_and_an_equal_one_is_not(ranking: Ranking) -> None:
    pairs = {pair.second: pair for pair in ranking.pairs}
    assert pairs["low"].verdict(pairs["low"].p_ceiling) == "base"
    assert pairs["same"].verdict(pairs["same"].p_ceiling) == "undecided"
    assert pairs["same"].verdict(pairs["same"].p_at[0][1]) == "undecided"
    assert pairs["slow"].verdict(pairs["slow"].p_faster) == "base"


def test_the_common_ceiling_leaves_out_who_has_another(ranking: Ranking) -> None:
    ceiling, names = ranking.common_ceiling()
    assert "low" not in names
    assert {"base", "same"} <= set(names)
    assert ceiling == pytest.approx(0.8, abs=0.03)


def test_an_unknown_ceiling_is_common_to_none(tmp_path: Path) -> None:
    for number, name in enumerate(("bent", "bent too", "young")):
        ended_run(tmp_path / name / "seed-0", number, c_mid=8e5 if name == "young" else 1e5)
    found = rank(study(tmp_path, "young", "bent", "bent too", seeds=1))
    assert set(found.common_ceiling()[1]) == {"bent", "bent too"}
    assert "not comparable, a ceiling is not identified" in write(found)
    alone = rank(study(tmp_path, "young", "bent", seeds=1))
    assert draw_efficiency(found) is not None
    assert draw_efficiency(alone) is None
    assert not (alone.folder / "efficiency.png").exists()


def test_files_and_tables(ranking: Ranking) -> None:
    text = write(ranking)
    folder = ranking.study.folder / "by-generated_tokens"
    assert (folder / "ranking.md").read_text() == text
    record = json.loads((folder / "ranking.json").read_text())
    assert record["base"][0]["A"] == pytest.approx(0.8, abs=0.02)
    rows = [line for line in text.splitlines() if line.startswith("| low ")]
    assert [line.count("|") for line in rows] == [8, 5]
    assert "2 of 2" in rows[0]
    for figure in (draw_curves(ranking), draw_efficiency(ranking)):
        assert figure is not None
        assert figure.parent == folder
        assert figure.stat().st_size > 10_000


def test_probabilities_are_of_the_variant_being_better(ranking: Ranking) -> None:
    name, *cells = (cell.strip() for cell in write(ranking).splitlines()[-2].split("|")[1:4])
    assert name == "low"
    for cell in cells:
        p, _, winner = cell.partition(": ")
        assert float(p) < 0.05
        assert winner == "base"


def test_compute_is_the_largest_that_all_reached(tmp_path: Path) -> None:
    for name, last in (("base", 1e6), ("short", 6e5)):
        ended_run(tmp_path / name / "seed-0", 1, last=last)
    found = rank(study(tmp_path, "base", "short", seeds=1))
    assert found.compute == pytest.approx(6e5)
    one = found.fits["base"][0]
    assert pass_rate_at(one, 6e5) == pytest.approx(one.curve.score[9:12].mean())
    assert found.pairs[0].p_at[0][0] == pytest.approx(6e5)


def test_another_compute_column_has_a_folder_of_its_own(ranking: Ranking) -> None:
    other = rank(ranking.study, "flops")
    assert other.folder.name == "by-flops"
    assert other.compute == pytest.approx(2e12)
    with pytest.raises(UserError, match="no column 'gpu_days'"):
        rank(ranking.study, "gpu_days")


def test_runs_that_have_not_ended_do_not_count(tmp_path: Path) -> None:
    ended_run(tmp_path / "a" / "seed-0", 1)
    ended_run(tmp_path / "a" / "seed-1", 2, state="running")
    found = rank(study(tmp_path, "a", "b"))
    assert [len(runs) for runs in found.fits.values()] == [1, 0]
    text = write(found)
    assert "| a | 1 of 2 |" in text
    assert "| b | 0 of 2 | - |" in text
    assert draw_efficiency(found) is None
    assert draw_curves(found).exists()


def test_a_run_off_the_law_is_shown_with_its_status(tmp_path: Path) -> None:
    ended_run(tmp_path / "a" / "seed-0", 1)
    ended_run(tmp_path / "b" / "seed-0", 2, a=0.1)
    ended_run(tmp_path / "c" / "seed-0", 3, points=3)
    ended_run(tmp_path / "d" / "seed-0", 4)
    text = write(rank(study(tmp_path, "a", "b", "c", "d", seeds=1)))
    assert "| no_rise |" in text
    assert "| too_few_points |" in text
    assert [f"| {name} | off the law | - | - |" in text for name in "abcd"] == [False, True, True, False]


def test_nothing_to_rank(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run has ended"):
        rank(study(tmp_path, "a", "b"))
