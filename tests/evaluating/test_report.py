"""The table that is printed: columns under their heads, whatever the labels."""

from __future__ import annotations

from scalerl_mini.evaluating.report import as_json, table
from scalerl_mini.evaluating.result import Evaluation
from tests.evaluating.test_result import found

SUMMARY = {
    "pass_rate_stderr": 0.01,
    "prompts": 4,
    "samples_per_prompt": 2,
    "mean_length": 9.5,
    "entropy": 0.2,
    "grading_errors": 3,
    "grading_timeouts": 1,
}
SETTINGS = {"samples": 2, "temperature": 1.0, "max_new_tokens": 51, "thinking_tokens": [30, 42], "seed": 0}


def evaluation(levels: list[str]) -> Evaluation:
    result = found(levels)
    result.summary.update(SUMMARY)
    return Evaluation("runs/first", 300, SETTINGS, [result], 1.5)


def test_columns_stand_under_their_heads() -> None:
    text = table(evaluation(["a long label of a level", "b", "x" * 99, "b"]))
    head, *rows = [line for line in text.splitlines() if line.endswith(("interrupted", "%"))]
    assert len(rows) == 4
    assert {len(line) for line in rows} == {len(head)}
    assert head.split() == ["prompts", "mean@2", "pass@1", "pass@2", "cut", "interrupted"]
    assert " ".join(rows[0].split()) == "all 4 0.375 +- 0.239 0.375 +- 0.239 0.500 +- 0.289 12.5% 25.0%"
    assert " ".join(rows[2].split()) == "b 2 0.500 +- 0.500 0.500 +- 0.500 0.500 +- 0.500 0.0% 0.0%"
    assert "2 samples a prompt, temperature 1, up to 51 tokens, thinking up to 42, seed 0" in text
    assert "grading failed: 3 errors, 1 time-outs, counted as wrong" in text
    assert "asked again, the same prompts: +- 0.010" in text


def test_the_object_is_plain() -> None:
    (task,) = as_json(evaluation(["all"] * 4))["tasks"]
    assert task["levels"] == {}
    assert task["pass_at_k"]["2"]["value"] == 0.5
    assert task["mean_stderr_same_prompts"] == 0.01
