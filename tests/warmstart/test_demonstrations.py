"""Clean demonstrations are right in every column; sloppy ones go wrong as often, and only in the ways, they say."""

from __future__ import annotations

import random
import re
from itertools import islice

import pytest

from scalerl_mini.tasks.arithmetic import Addition, Arithmetic
from scalerl_mini.warmstart.demonstrations import CLEAN, Demonstration, Sloppiness, demonstrate, demonstrations
from scalerl_mini.warmstart.trainer import DEMONSTRATIONS_PER_STEP, FACTS, SLOPPY, Phase

TASK = Arithmetic()


def take(count: int, sloppiness: Sloppiness, seed: int = 0) -> list[Demonstration]:
    return list(islice(demonstrations(seed, sloppiness, 2, 6), count))


def columns(demo: Demonstration) -> list[tuple[list[int], int]]:
    """The written columns as (summands, sum)."""
    thinking = demo.completion.partition("</think>")[0]
    parts = [step.partition("=") for step in thinking.split()]
    return [([int(summand) for summand in left.split("+")], int(total)) for left, _, total in parts]


def reward(demo: Demonstration) -> float:
    return TASK.grade(demo.prompt, demo.completion)


def test_the_documented_example() -> None:
    demo = demonstrate(Addition(684, 154), CLEAN, random.Random(0))
    assert demo.prompt.text + demo.completion == "<bos>684+154=<think>4+4=8 8+5=13 6+1+1=8</think>838<eos>"


def test_the_last_carry_becomes_the_first_digit() -> None:
    demo = demonstrate(Addition(95, 17), CLEAN, random.Random(0))
    assert demo.completion == "5+7=12 9+1+1=11</think>112<eos>"


def test_clean_demonstrations_are_right_in_every_step_and_score_one() -> None:
    for demo in take(500, CLEAN):
        first, second = re.findall(r"\d+", demo.prompt.text)
        carry = 0
        for place, (summands, total) in enumerate(columns(demo), start=1):
            assert summands == [int(first[-place]), int(second[-place]), *([1] if carry else [])]
            assert total == sum(summands)
            carry = total // 10
        assert len(columns(demo)) == len(first)
        assert reward(demo) == 1.0


def test_a_wrong_sum_is_off_by_one_or_two_and_is_carried_on() -> None:
    demos = take(500, Sloppiness(wrong_sum=0.3, cut_short=0.0, ramble=0.0))
    errors = [total - sum(summands) for demo in demos for summands, total in columns(demo)]
    assert set(errors) == {-2, -1, 0, 1, 2}
    assert sum(error != 0 for error in errors) / len(errors) == pytest.approx(0.3, abs=0.04)
    for demo in demos:
        totals = [total for _, total in columns(demo)]
        assert [len(summands) == 3 for summands, _ in columns(demo)] == [False] + [total > 9 for total in totals[:-1]]
        answer = ("1" if totals[-1] > 9 else "") + "".join(str(total % 10) for total in reversed(totals))
        assert demo.completion.endswith(f"</think>{answer}<eos>")


def test_cut_short_keeps_the_low_digits_and_guesses_the_others() -> None:
    demos = take(500, Sloppiness(wrong_sum=0.0, cut_short=1.0, ramble=0.0))
    for demo in demos:
        digits, written = len(demo.prompt.text.partition("+")[2]) - len("=<think>"), columns(demo)
        assert len(written) < digits
        answer = demo.completion.partition("</think>")[2].removesuffix("<eos>")
        assert digits <= len(answer) <= digits + 1
        assert answer.endswith("".join(str(total % 10) for _, total in reversed(written)))
    assert 0.0 < sum(map(reward, demos)) / len(demos) < 0.1


def test_ramble_repeats_the_last_column_and_still_answers_right() -> None:
    for demo in take(200, Sloppiness(wrong_sum=0.0, cut_short=0.0, ramble=1.0)):
        digits = len(demo.prompt.text.partition("+")[2]) - len("=<think>")
        written = columns(demo)
        assert digits + 2 <= len(written) <= digits + 8
        assert all(step == written[-1] for step in written[digits:])
        assert reward(demo) == 1.0


def test_the_stream_depends_on_its_arguments_alone() -> None:
    assert take(50, SLOPPY.sloppiness, seed=3) == take(50, SLOPPY.sloppiness, seed=3)
    assert take(50, SLOPPY.sloppiness, seed=3) != take(50, SLOPPY.sloppiness, seed=4)


@pytest.mark.parametrize("phase", [FACTS, SLOPPY])
def test_the_shipped_warm_start_never_saw_a_problem_of_reinforcement_learning(phase: Phase) -> None:
    """Replays the whole stream of seed 0; a+b and b+a count as the same problem."""
    seen = {
        frozenset(re.findall(r"\d+", demo.prompt.text))
        for demo in take(phase.steps * DEMONSTRATIONS_PER_STEP, phase.sloppiness)
    }
    assert len(seen) > 0.5 * phase.steps * DEMONSTRATIONS_PER_STEP
    for prompt in TASK.held_out + TASK.train:
        assert frozenset(re.findall(r"\d+", prompt.text)) not in seen
