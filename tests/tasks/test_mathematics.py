"""math-verify on the bundled sample, and what a hostile answer costs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from scalerl_mini.config_groups import TaskConfig
from scalerl_mini.rollout.grading_process import GradingProcess
from scalerl_mini.tasks import load_task
from scalerl_mini.tasks.grade import Verdict
from scalerl_mini.tasks.mathematics import SAMPLE

pytest.importorskip("math_verify")


def test_every_gold_answer_of_the_sample_is_right_and_most_others_are_wrong() -> None:
    task = load_task("math")
    prompts = [*task.train, *task.held_out]
    assert len(prompts) == len(SAMPLE.read_text().splitlines()) == 40
    wrong = [prompt.answer for prompt in prompts if task.grade(prompt, f"So it is $\\boxed{{{prompt.answer}}}$.") != 1]
    assert wrong == []
    assert [prompt.answer for prompt in prompts if task.grade(prompt, "So it is $\\boxed{1001}$.") != 0] == []


def test_signs_and_fractions() -> None:
    task = load_task("math")
    by_answer = {prompt.answer: prompt for prompt in (*task.train, *task.held_out)}
    for answer, text, reward in (
        ("-48", "$-48$", 1),
        ("-48", "$48$", 0),
        ("\\frac{7}{12}", "$7/12$", 1),
        ("\\frac{7}{12}", "$\\frac{14}{24}$", 1),
        ("\\frac{7}{12}", "$\\frac{12}{7}$", 0),
        ("-\\frac{7}{20}", "$\\frac{-7}{20}$", 1),
        ("-\\frac{7}{20}", "$-0.35$", 1),
        ("-\\frac{7}{20}", "$0.35$", 0),
        ("\\{-4, 4\\}", "$\\{4, -4\\}$", 1),
    ):
        assert task.grade(by_answer[answer], text) == reward, (answer, text)


CODE = "__import__('os').system('touch {file}')"
HOSTILE = [
    CODE, "$" + CODE + "$", "$$" + CODE + "$$", "\\boxed{{" + CODE + "}}", "\\text{{" + CODE + "}}",
    "$\\operatorname{{exec}}(\"" + CODE + "\")$", "Answer: eval(\"" + CODE + "\")", "$\\write18{{touch {file}}}$",
    "$\\input{{|\"touch {file}\"}}$", "\\[ x.__class__.__mro__[-1].__subclasses__() \\]", "$`touch {file}`$",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_an_answer_that_is_code_does_nothing(tmp_path: Path, text: str) -> None:
    """Graded in this very process, where whatever it set off would be seen."""
    file = tmp_path / "fired"
    task = load_task("math")
    assert task.grade(task.train[0], text.format(file=file)) == 0
    assert not file.exists()


@pytest.mark.slow
def test_a_power_tower_returns_within_the_limit_and_the_next_answer_is_graded() -> None:
    worker = GradingProcess(TaskConfig(name="math", grade_timeout_s=3.0))
    try:
        answer = load_task("math").train[0].answer
        assert worker.grade("train", 0, f"$\\boxed{{{answer}}}$").reward == 1  # the worker has started
        start = time.monotonic()
        tower = worker.grade("train", 0, "$9^{9^{9^{9^{9}}}}$")
        assert time.monotonic() - start < 4.0
        assert tower.reward == 0
        again = worker.grade("train", 0, f"$\\boxed{{{answer}}}$")
        assert (again.reward, again.verdict) == (1, Verdict.GRADED)
    finally:
        worker.kill()


def test_gsm8k_files_are_read_as_they_are(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} times 1000?", "answer": f"We multiply.\n#### {n},000"} for n in range(1, 5)]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = load_task("gsm8k", path=str(path), held_out_prompts=1)
    prompt = task.train[0]
    thousands = prompt.text.split()[2]
    assert task.grade(prompt, f"The answer is {thousands}000.") == 1
    assert prompt.answer == f"{thousands}000"
    assert task.grade(prompt, f"The answer is -{thousands}000.") == 0
