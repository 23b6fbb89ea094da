"""A task of your own in one small class: doubling numbers, asked in the built-in model's alphabet.

    scalerl-mini train --config examples/quick.toml --set 'task.name="examples/own_task.py:Doubling"' --out runs/doubling

A task has a name, training prompts, held-out prompts and a grade in [0, 1]. The text of a prompt is tokenised exactly as
it stands; the completion that is graded contains the special tokens too. `grade` runs in worker processes, so it may hang
or fail: that is counted and costs one reward of 0. (This one is so simple that the class could say `trusted = True`, to be
graded without them.)
"""

from __future__ import annotations

import random

from scalerl_mini.tasks import Prompt


class Doubling:
    """n + n for numbers of three or four digits."""

    name = "doubling"

    def __init__(self, train_prompts: int = 400, held_out_prompts: int = 200) -> None:
        numbers = random.Random(0).sample(range(100, 10_000), train_prompts + held_out_prompts)
        prompts = [Prompt(f"<bos>{n}+{n}=<think>", str(2 * n), f"{len(str(n))} digits") for n in numbers]
        self.held_out, self.train = prompts[:held_out_prompts], prompts[held_out_prompts:]

    def grade(self, prompt: Prompt, completion: str) -> float:
        """1 when the text after the last </think> is the answer, else 0."""
        answer = completion.removesuffix("<eos>").rpartition("</think>")[2]
        return float(answer == prompt.answer)
