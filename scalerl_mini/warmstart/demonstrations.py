"""Worked examples of column addition, right ones and - on purpose - sloppy ones.

A base model that is right too often leaves reinforcement learning nothing to do; one that merely was not trained long
enough does not know the facts, and no reward teaches them to it. So the warm start first teaches the facts from nearly
clean demonstrations, then a habit of sloppiness from bad ones: column sums that are wrong, thinking that is cut short
and followed by a guess, thinking that goes in circles. Sampling then shows the right way now and then, and
reinforcement learning has something to select. None of this is in the paper, which starts from a finished base model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from scalerl_mini.tasks import Prompt
from scalerl_mini.tasks.arithmetic import Addition, draw_addition


@dataclass(frozen=True, slots=True)
class Sloppiness:
    """How often a demonstration goes wrong; probabilities in [0, 1].

    `wrong_sum` is per column: the sum is off by one or two, and the error is carried on. `cut_short` and `ramble` are
    per demonstration and exclude each other: the thinking stops before some column and the digits above are guessed,
    or the last written column is repeated two to eight times before the right answer follows.
    """

    wrong_sum: float
    cut_short: float
    ramble: float


CLEAN = Sloppiness(wrong_sum=0.0, cut_short=0.0, ramble=0.0)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt and the completion to imitate, `<eos>` included."""

    prompt: Prompt
    completion: str


def demonstrations(seed: int, sloppiness: Sloppiness, min_digits: int, max_digits: int) -> Iterator[Demonstration]:
    """An endless stream that depends on its arguments alone, from the warm start's half of the problem space."""
    rng = random.Random(f"demonstrations {seed} {sloppiness}")
    while True:
        problem = draw_addition(rng, rng.randint(min_digits, max_digits), for_warm_start=True)
        yield demonstrate(problem, sloppiness, rng)


def demonstrate(problem: Addition, sloppiness: Sloppiness, rng: random.Random) -> Demonstration:
    """One demonstration of `problem`; with CLEAN it is right in every step and in its answer."""
    steps, digits, carry = _work_columns(problem, sloppiness.wrong_sum, rng)
    fate = rng.random()
    if fate < sloppiness.cut_short:
        kept = rng.randrange(len(steps))
        steps, answer = steps[:kept], _guess_above(digits[:kept], len(digits), rng)
    else:
        answer = ("1" if carry else "") + "".join(reversed(digits))
        if fate < sloppiness.cut_short + sloppiness.ramble:
            steps = steps + steps[-1:] * rng.randint(2, 8)
    return Demonstration(problem.prompt(), f"{' '.join(steps)}</think>{answer}<eos>")


def _work_columns(problem: Addition, wrong_sum: float, rng: random.Random) -> tuple[list[str], list[str], int]:
    """Written columns, their result digits (both lowest first) and the last carry."""
    steps, digits, carry = [], [], 0
    for upper, lower in zip(reversed(str(problem.first)), reversed(str(problem.second)), strict=True):
        total = int(upper) + int(lower) + carry
        if rng.random() < wrong_sum:
            total = _misjudge(total, rng)
        steps.append(f"{upper}+{lower}{'+1' if carry else ''}={total}")
        digits.append(str(total % 10))
        carry = total // 10
    return steps, digits, carry


def _misjudge(total: int, rng: random.Random) -> int:
    """A column sum in 0..19 that is off by one or two."""
    return rng.choice([wrong for wrong in range(total - 2, total + 3) if wrong != total and 0 <= wrong <= 19])


def _guess_above(known: list[str], columns: int, rng: random.Random) -> str:
    """An answer whose low digits are `known` (lowest first) and whose other digits are made up."""
    guesses = [str(rng.randrange(10)) for _ in range(columns - len(known) - 1)]
    highest = str(rng.randrange(1, 20))
    return highest + "".join(guesses) + "".join(reversed(known))
