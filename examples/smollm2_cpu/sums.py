"""Sums of two small numbers, asked in words and graded from the text of the answer."""

from __future__ import annotations

import random

from scalerl_mini.errors import UserError
from scalerl_mini.tasks import Prompt
from scalerl_mini.tasks.answers import number

END = "<|im_end|>"


class Sums:
    """ "What is 7 + 12? Answer briefly." with numbers from `smallest` to `largest`.

    A third of the pairs is held out; a + b and b + a are the same pair. The last number of the answer must be the sum, and
    the model must have ended its turn: whoever rambles until it is cut has not answered.
    """

    name = "sums"
    trusted = True  # grading compares two numbers

    def __init__(self, smallest: int = 2, largest: int = 16, split_seed: int = 0) -> None:
        numbers = range(smallest, largest + 1)
        if len(numbers) < 3:
            raise UserError(f"task.options: {smallest} to {largest} are too few numbers; set largest higher")
        pairs = [(a, b) for a in numbers for b in numbers if a <= b]
        random.Random(split_seed).shuffle(pairs)
        held_out = len(pairs) // 3
        self.held_out = self._ask(pairs[:held_out], split_seed)
        self.train = self._ask(pairs[held_out:], split_seed)

    @staticmethod
    def _ask(pairs: list[tuple[int, int]], seed: int) -> tuple[Prompt, ...]:
        """Each pair in both orders, in an order that the seed decides."""
        asked = sorted({order for a, b in pairs for order in ((a, b), (b, a))})
        random.Random(seed).shuffle(asked)
        return tuple(Prompt(f"What is {a} + {b}? Answer briefly.", str(a + b), f"{_tens(a + b)}") for a, b in asked)

    def grade(self, prompt: Prompt, completion: str) -> float:
        """1 when the turn has ended and its last number is the sum, else 0."""
        answer, ended, _ = completion.partition(END)
        return number(prompt.answer, answer) if ended else 0.0


def _tens(total: int) -> str:
    return "sum below 10" if total < 10 else "sum below 20" if total < 20 else "sum from 20"
