"""From result rows to lines by level."""

from __future__ import annotations

import numpy as np

from scalerl_mini.evaluating.result import TaskResult
from scalerl_mini.runtime.evaluation_board import result_dtype

LEVELS = ["10 digits", "2 digits", "hard", "2 digits"]


def found(levels: list[str]) -> TaskResult:
    rows = np.zeros(len(levels), result_dtype(2))
    rows["reward"][:3] = [[1, 0], [1, 1], [0, 0]]
    rows["truncated"][0, 1] = rows["interrupted"][2] = True
    return TaskResult.of("sums", {}, False, rows, levels, (1, 2), {})


def test_levels_are_in_the_order_of_their_numbers_and_have_their_own_prompts() -> None:
    result = found(LEVELS)
    assert [line.label for line in result.levels] == ["2 digits", "10 digits", "hard"]
    assert [line.measures.prompts for line in result.levels] == [2, 1, 1]
    assert [line.measures.mean.value for line in result.levels] == [0.5, 0.5, 0.0]
    assert [line.measures.pass_at_k[2].value for line in result.levels] == [0.5, 1.0, 0.0]
    assert [line.truncated for line in result.levels] == [0.0, 0.5, 0.0]
    assert [line.interrupted for line in result.levels] == [0.0, 0.0, 1.0]
    assert (result.overall.measures.mean.value, result.overall.truncated) == (3 / 8, 1 / 8)


def test_one_level_is_no_table() -> None:
    assert found(["all"] * 4).levels == []
