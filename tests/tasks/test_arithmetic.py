"""The problem sets: right answers, the promised format, disjoint, evenly mixed, fixed by their seed."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.tasks import Prompt, load_task
from scalerl_mini.tasks.arithmetic import Addition, Arithmetic, draw_addition

TASK = Arithmetic()


def operands(prompt: Prompt) -> tuple[int, int]:
    match = re.fullmatch(r"<bos>([1-9]\d*)\+([1-9]\d*)=<think>", prompt.text)
    assert match, prompt.text
    return int(match[1]), int(match[2])


def key(prompt: Prompt) -> frozenset[int]:
    """a+b and b+a alike; written apart from the code's own key."""
    return frozenset(operands(prompt))


def test_prompts_have_the_promised_format_and_answer() -> None:
    for prompt in TASK.train + TASK.held_out:
        first, second = operands(prompt)
        assert len(str(first)) == len(str(second))
        assert prompt.level == f"{len(str(first))} digits"
        assert prompt.answer == str(first + second)


def test_defaults_have_the_promised_sizes_and_no_repeated_problem() -> None:
    assert (len(TASK.train), len(TASK.held_out)) == (3000, 1000)
    keys = [key(prompt) for prompt in TASK.train + TASK.held_out]
    assert len(set(keys)) == len(keys)


def test_no_problem_of_reinforcement_learning_lies_on_the_warm_starts_side() -> None:
    assert not any(Addition(*operands(prompt)).for_warm_start for prompt in TASK.train + TASK.held_out)


def test_the_sides_are_halves_and_do_not_depend_on_the_order_of_the_operands() -> None:
    rng = random.Random(1)
    problems = [Addition(rng.randrange(10, 10**6), rng.randrange(10, 10**6)) for _ in range(4000)]
    sides = [problem.for_warm_start for problem in problems]
    assert sides == [Addition(problem.second, problem.first).for_warm_start for problem in problems]
    assert abs(sum(sides) / len(sides) - 0.5) < 0.03  # 3.8 standard errors


@pytest.mark.parametrize("side", [True, False])
def test_draw_stays_on_its_side(side: bool) -> None:
    rng = random.Random(2)
    drawn = [draw_addition(rng, 3, for_warm_start=side) for _ in range(200)]
    assert {problem.for_warm_start for problem in drawn} == {side}
    assert {len(str(number)) for problem in drawn for number in (problem.first, problem.second)} == {3}


def test_both_sets_have_the_same_mix_and_so_has_any_prefix() -> None:
    levels = {f"{n} digits" for n in range(2, 7)}
    assert Counter(prompt.level for prompt in TASK.held_out) == dict.fromkeys(levels, 200)
    assert Counter(prompt.level for prompt in TASK.train) == dict.fromkeys(levels, 600)
    for prompts in (TASK.train, TASK.held_out):
        for start in range(0, 100, 5):
            assert {prompt.level for prompt in prompts[start : start + 5]} == levels


def test_the_held_out_set_depends_on_the_split_seed_alone() -> None:
    assert Arithmetic(train_prompts=10).held_out == TASK.held_out
    assert Arithmetic(held_out_prompts=100).held_out == TASK.held_out[:100]
    assert Arithmetic(split_seed=1).held_out != TASK.held_out


def test_the_same_options_give_the_same_prompts_for_ever() -> None:
    assert Arithmetic().train == TASK.train
    assert TASK.held_out[0] == Prompt("<bos>19+65=<think>", "84", "2 digits")
    assert TASK.held_out[4] == Prompt("<bos>944184+277928=<think>", "1222112", "6 digits")


def test_one_digit_is_singular() -> None:
    assert Addition(3, 4).prompt() == Prompt("<bos>3+4=<think>", "7", "1 digit")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_digits": 0}, "task.options.min_digits"),
        ({"min_digits": 4, "max_digits": 3}, "task.options.min_digits"),
        ({"max_digits": 13}, "task.options.max_digits"),
        ({"train_prompts": 0}, "task.options.train_prompts"),
        ({"held_out_prompts": -1}, "task.options.held_out_prompts"),
        ({"min_digits": 1}, "not enough different 1-digit problems"),
    ],
)
def test_bad_options_are_explained(options: dict[str, int], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        load_task("arithmetic", **options)
