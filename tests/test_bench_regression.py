"""The regression check of the benchmarks: which way is worse, and by how much it must be."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import regressions
from tests.bench.harness import Ratio


@pytest.mark.parametrize(
    ("value", "higher_is_better", "worse"),
    [(1.0, True, False), (0.81, True, False), (0.79, True, True), (9.0, True, False),
     (1.24, False, False), (1.26, False, True), (0.1, False, False)],
)  # fmt: skip
def test_worse_by_more_than_a_quarter_is_a_regression(value: float, higher_is_better: bool, worse: bool) -> None:
    ratio = Ratio("speed", value, 1.0, higher_is_better, "")
    assert bool(regressions([ratio], {"speed": 1.0})) is worse


def test_a_ratio_without_a_baseline_is_no_regression() -> None:
    assert regressions([Ratio("new", 0.0, 1.0, True, "")], {}) == []


@pytest.mark.parametrize(("higher_is_better", "met"), [(True, False), (False, True)])
def test_a_goal_has_a_side(higher_is_better: bool, met: bool) -> None:
    assert Ratio("speed", 0.5, 1.0, higher_is_better, "").met is met
