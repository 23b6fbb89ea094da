"""`scalerl-mini ablate`: bad input is exit 2 with one line and nothing created; a study in a folder is picked up again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scalerl_mini import cli
from tests.ablation.fabricated import ended_run
from tests.cli.command import run

TWO = ("--variants", "base,loo-savg")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "no study in"),
        (("--variants", "base"), "at least two"),
        (("--variants", "base,typo"), "'typo' is unknown"),
        (("--variants", "base,scalerl"), "same configuration"),
        (("--variants", "base,loo-savg", "--recipe", "typo"), "'typo' is unknown"),
        (("--recipe", "magistral"), "belong to a new study"),
        (("--grid", "pipeline.k"), "KEY=A,B"),
        (("--grid", "pipeline.q=1,2"), "pipeline.q"),
        (
            ("--grid", "objective.zero_variance_filter=true,false", "--set", "objective.refill_rounds=2"),
            "refill_rounds",
        ),
        ((*TWO, "--set", "training.steps=many"), "training.steps"),
        ((*TWO, "--seeds", "0"), "--seeds"),
        ((*TWO, "--rank-only"), "no run has ended"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], word: str) -> None:
    done = run("ablate", *arguments, "--out", tmp_path / "study")
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "study").exists()


@pytest.fixture
def ended_study(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    for name in ("base", "loo-savg"):
        ended_run(folder / name / "seed-0", len(name))
    return folder


@pytest.mark.parametrize(("steps", "told"), [(100, True), (300, False)])
def test_a_change_that_cannot_act_is_said(tmp_path: Path, steps: int, told: bool) -> None:
    """16 prompts a step of 3000."""
    for name in ("base", "loo-uniform"):
        ended_run(tmp_path / "study" / name / "seed-0", len(name))
    words = ("--variants", "base,loo-uniform", "--seeds", 1, "--set", f"training.steps={steps}")
    done = run("ablate", *words, "--out", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("note: no_positive_resampling changes nothing while no prompt comes twice") == told


def test_an_ended_study_is_ranked_and_known_again(ended_study: Path) -> None:
    done = run("ablate", *TWO, "--seeds", 1, "--out", ended_study)
    assert done.returncode == 0, done.stderr
    assert "2 runs, 2 already ended" in done.stderr
    assert "| loo-savg | 1 of 1 |" in done.stdout
    for name in ("ranking.md", "ranking.json", "curves.png", "efficiency.png"):
        assert (ended_study / "by-generated_tokens" / name).exists()
    again = run("ablate", "--out", ended_study, "--x", "flops")
    assert (again.returncode, "| loo-savg | 1 of 1 |" in again.stdout) == (0, True)
    assert (ended_study / "by-flops" / "ranking.md").exists()
    other = run("ablate", *TWO, "--seeds", 1, "--set", "training.steps=9", "--out", ended_study)
    assert (other.returncode, "another --recipe or --set" in other.stderr) == (2, True)


def test_rank_only_starts_and_records_nothing(ended_study: Path) -> None:
    done = run("ablate", *TWO, "--rank-only", "--out", ended_study)
    assert done.returncode == 0, done.stderr
    assert "| base | 1 of 2 |" in done.stdout
    assert not (ended_study / "study.json").exists()


def test_a_failed_run_is_exit_1_and_named(ended_study: Path) -> None:
    """A model that is not there: the configuration is sound, `train` refuses it."""
    done = run("ablate", *TWO, "--variant", "gone: model.name=no/such/folder", "--seeds", 1, "--out", ended_study)
    assert done.returncode == 1
    assert f"gone seed 0: failed with exit 2; see {ended_study / 'gone' / 'seed-0.log'}" in done.stderr
    assert "| gone | 0 of 1 |" in done.stdout
    assert [v["name"] for v in json.loads((ended_study / "study.json").read_text())["variants"]][-1] == "gone"


def test_an_interrupted_study_says_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scalerl_mini.ablation.running.run_study", interrupted)
    monkeypatch.setattr(sys, "argv", ["scalerl-mini", "ablate", *TWO, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ending:
        cli.main()
    assert ending.value.code == 130
    assert f"continue with: scalerl-mini ablate --out {tmp_path}" in capsys.readouterr().err
