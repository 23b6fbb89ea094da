"""The grader compares text after the thinking part and nothing else."""

from __future__ import annotations

import pytest

from scalerl_mini.tasks import load_task
from scalerl_mini.tasks.arithmetic import Addition
from scalerl_mini.tasks.grading import final_answer

TASK = load_task("arithmetic", train_prompts=5, held_out_prompts=5)
PROMPT = Addition(684, 154).prompt()

CASES = [
    ("4+4=8 8+5=13 6+1+1=8</think>838<eos>", 1.0),
    ("</think>838<eos>", 1.0),
    ("</think>838", 1.0),  # cut at the limit right after the answer
    ("4+4=8</think>999</think>838<eos>", 1.0),  # the last </think> counts
    ("4+4=8</think>838</think>999<eos>", 0.0),
    ("</think>838<eos>junk</think>999", 1.0),  # nothing after <eos> counts
    ("</think>999<eos></think>838<eos>", 0.0),
    ("838<eos>", 0.0),  # thinking never closed
    ("4+4=8 8+5=13 838", 0.0),
    ("", 0.0),
    ("</think>", 0.0),
    ("</think><eos>", 0.0),
    ("</think>0838<eos>", 0.0),
    ("</think> 838<eos>", 0.0),
    ("</think>838 <eos>", 0.0),
    ("</think>8380<eos>", 0.0),
    ("</think>684+154<eos>", 0.0),  # not evaluated
    ("</think>838.0<eos>", 0.0),
    ("</think>__import__('os')<eos>", 0.0),
    ("</think>838<pad><eos>", 0.0),
]


@pytest.mark.parametrize(("completion", "reward"), CASES)
def test_grade(completion: str, reward: float) -> None:
    assert TASK.grade(PROMPT, completion) == reward


def test_an_unclosed_completion_has_no_answer_and_an_empty_answer_is_one() -> None:
    assert final_answer("4+4=8") is None
    assert final_answer("4+4=8</think>") == ""


def test_every_gold_answer_scores_one_and_its_neighbour_zero() -> None:
    for prompt in TASK.train + TASK.held_out:
        assert TASK.grade(prompt, f"</think>{prompt.answer}<eos>") == 1.0
        assert TASK.grade(prompt, f"</think>{int(prompt.answer) + 1}<eos>") == 0.0
