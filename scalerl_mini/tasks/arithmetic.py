"""The built-in task: adding two numbers of equal length, with the columns worked out in the thinking part.

    <bos>684+154=<think>   ->   4+4=8 8+5=13 6+1+1=8</think>838<eos>

It stands for the paper's competition mathematics on two CPU cores: the answer is exactly gradable, difficulty is one
number, and the thinking grows with it - so a thinking budget that the longest sums overrun sets a ceiling below 1.

Three sets never share a problem, and a+b is the same problem as b+a:
- a fixed hash of the problem splits the whole problem space in two, one side for the warm start's demonstrations, the
  other for reinforcement learning. So no choice of options below can make the two meet;
- on the second side the held-out set is drawn first, from `split_seed` alone: it is the same whatever the training set;
- the training set is drawn next, without the held-out problems.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.base import Prompt
from scalerl_mini.tasks.grading import exact_match

MOST_DIGITS = 12
MOST_TRIES = 20_000


@dataclass(frozen=True, slots=True)
class Addition:
    """The problem `first + second`; both have the same number of digits and no leading zero."""

    first: int
    second: int

    @property
    def key(self) -> tuple[int, int]:
        """The same for a+b and b+a."""
        return min(self.first, self.second), max(self.first, self.second)

    @property
    def for_warm_start(self) -> bool:
        """Which half of the problem space it lies in: True for demonstrations, False for reinforcement learning."""
        return hashlib.blake2b(b"%d+%d" % self.key, digest_size=1).digest()[0] % 2 == 0

    def prompt(self) -> Prompt:
        """The problem as a prompt, thinking part opened."""
        digits = len(str(self.first))
        level = f"{digits} digit{'s' if digits > 1 else ''}"
        return Prompt(f"<bos>{self.first}+{self.second}=<think>", str(self.first + self.second), level)


def draw_addition(rng: random.Random, digits: int, *, for_warm_start: bool) -> Addition:
    """A uniform problem of `digits` digits from the asked half of the problem space."""
    while True:
        low, high = 10 ** (digits - 1), 10**digits
        problem = Addition(rng.randrange(low, high), rng.randrange(low, high))
        if problem.for_warm_start == for_warm_start:
            return problem


class Arithmetic:
    """Column addition of two n-digit numbers, n evenly spread over `min_digits`..`max_digits`.

    Options: `train_prompts` and `held_out_prompts` (how many), `min_digits` and `max_digits` (1..12), `split_seed`
    (which held-out set). Levels take turns, so any prefix of either set has the difficulty mix of the whole.
    Raises UserError when an option is out of range or so many different problems do not exist.
    """

    name = "arithmetic"
    trusted = True  # grading compares two strings

    def __init__(
        self,
        train_prompts: int = 3000,
        held_out_prompts: int = 1000,
        min_digits: int = 2,
        max_digits: int = 6,
        split_seed: int = 0,
    ) -> None:
        options = {"train_prompts": train_prompts, "held_out_prompts": held_out_prompts, "split_seed": split_seed}
        for option, value in {**options, "min_digits": min_digits, "max_digits": max_digits}.items():
            if type(value) is not int:
                raise UserError(f"task.options.{option}: {value!r} is not a whole number; write it as one")
        if not 1 <= min_digits <= max_digits <= MOST_DIGITS:
            raise UserError(
                f"task.options.min_digits, task.options.max_digits: {min_digits}..{max_digits} is no range"
                f" within 1..{MOST_DIGITS}; set min_digits <= max_digits"
            )
        for option, count in (("train_prompts", train_prompts), ("held_out_prompts", held_out_prompts)):
            if count < 1:
                raise UserError(
                    f"task.options.{option}: {count} is not a positive number of prompts; ask for at least 1"
                )
        levels = range(min_digits, max_digits + 1)
        seen: set[tuple[int, int]] = set()
        held_out = _draw_unseen(random.Random(f"held-out {split_seed}"), levels, held_out_prompts, seen)
        self.held_out = tuple(problem.prompt() for problem in held_out)
        train = _draw_unseen(random.Random(f"train {split_seed}"), levels, train_prompts, seen)
        self.train = tuple(problem.prompt() for problem in train)

    def grade(self, prompt: Prompt, completion: str) -> float:
        """1.0 iff the text after the last `</think>` is exactly the sum, else 0.0."""
        return exact_match(prompt.answer, completion)


def _draw_unseen(rng: random.Random, levels: range, count: int, seen: set[tuple[int, int]]) -> Iterator[Addition]:
    """`count` new problems, levels taking turns; their keys are added to `seen`."""
    for index in range(count):
        digits = levels[index % len(levels)]
        for _ in range(MOST_TRIES):
            problem = draw_addition(rng, digits, for_warm_start=False)
            if problem.key not in seen:
                break
        else:
            raise UserError(
                f"task.options.train_prompts, task.options.held_out_prompts: there are not enough"
                f" different {digits}-digit problems; ask for fewer prompts or raise min_digits"
            )
        seen.add(problem.key)
        yield problem
