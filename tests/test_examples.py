"""Every configuration among the examples passes all checks that come before a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalerl_mini.config import load_config
from scalerl_mini.training.preflight import preflight

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_could_be_run(path: Path) -> None:
    preflight(load_config(path))
