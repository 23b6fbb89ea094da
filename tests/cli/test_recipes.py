"""`scalerl-mini recipes`: a table that fits a terminal, a file with its comments, one line for a wrong name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scalerl_mini.recipes import recipe_names, recipe_text
from tests.cli.command import run


def table(columns: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "scalerl_mini", "recipes"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"COLUMNS": str(columns)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_fits_the_terminal_and_cuts_nothing(columns: int) -> None:
    lines = table(columns).splitlines()
    assert max(map(len, lines)) <= 80
    header = lines[0].split()
    assert header == recipe_names()
    rows = {line.split()[0]: line.split()[1:] for line in lines if len(line.split()) > 1}
    assert rows["loss"] == ["cispo", "grpo", "dapo", "cispo", "dapo"]
    assert rows["no_positive_resampling"] == ["0.9", "false", "false", "false", "false"]
    assert rows["mode"] == ["pipeline", "ppo", "pipeline", "ppo", "ppo"]


def test_constants_a_recipe_does_not_have_are_a_dash() -> None:
    row = next(line for line in table(80).splitlines() if line.split()[:1] == ["eps_low"])
    assert row.split()[1:] == ["-", "-", "0.2", "-", "0.2"]


@pytest.mark.parametrize("name", recipe_names())
def test_one_recipe_is_its_file(name: str) -> None:
    assert run("recipes", name).stdout == recipe_text(name)


@pytest.mark.parametrize("name", recipe_names())
def test_each_key_says_where_it_comes_from(name: str) -> None:
    sources = ("stated", "not stated", "inferred", "our reading", "ScaleRL's own", "only MiniMax-M1 and ScaleRL")
    for line in recipe_text(name).splitlines():
        key, comment, source = line.partition("#")
        if "=" in key:
            assert comment, line
            assert source.strip().startswith(sources), line


def test_an_unknown_recipe() -> None:
    done = run("recipes", "ppo")
    assert done.returncode == 2
    assert "'ppo' is unknown" in done.stderr
    assert "scalerl" in done.stderr
