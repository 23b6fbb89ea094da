"""The thinking budget of a completion: uniform over its range, and a function of the completion's seed alone."""

from __future__ import annotations

import numpy as np

from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.seeds import derive_seed, uniform


def test_budgets_are_uniform_over_the_inclusive_range() -> None:
    interruption = Interruption((1,), (1,), min_tokens=10, max_tokens=12)
    budgets = [interruption.budget(derive_seed(0, "train", index)) for index in range(3000)]
    values, counts = np.unique(budgets, return_counts=True)
    assert values.tolist() == [10, 11, 12]
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(3000 * (1 / 3) * (2 / 3))


def test_a_range_of_one_value_is_that_value() -> None:
    interruption = Interruption((1,), (1,), min_tokens=40, max_tokens=40)
    assert {interruption.budget(seed) for seed in range(50)} == {40}


def test_the_budget_is_independent_of_the_tokens_of_the_same_seed() -> None:
    interruption = Interruption((1,), (1,), min_tokens=0, max_tokens=9_999_999)
    seeds = [derive_seed("x", index) for index in range(4000)]
    budgets = np.array([interruption.budget(seed) for seed in seeds])
    first_draws = uniform(np.array(seeds, np.uint64), np.zeros(4000, np.int64))
    assert abs(np.corrcoef(budgets, first_draws)[0, 1]) < 4 / np.sqrt(4000)
    assert budgets.tolist() == [interruption.budget(seed) for seed in seeds]
