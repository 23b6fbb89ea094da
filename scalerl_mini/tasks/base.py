"""What a task is: prompts to train on, prompts held out, and a grade in [0, 1] for a completion.

A task knows text only - no tokenizer, no model, no torch - so that a person can write one in twenty lines and any
process can build its own copy from the name and the options. The paper rewards +1 / -1; here a grade lies in [0, 1],
so that its mean *is* the pass rate of the law. Advantages are centred and normalised, so nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question.

    `text` is exactly what is tokenised: nothing is added before or after it, unless
    `model.chat_template` makes it the user's message in the model's chat template. `answer` is what the grader looks for.
    `level` is a difficulty label such as "4 digits"; pass rates are also reported by level.
    """

    text: str
    answer: str
    level: str


@runtime_checkable
class Task(Protocol):
    """Prompts and their grader. Both sequences have the same order in every process that builds the task.

    `grade` runs in worker processes with limits on time, memory and input (the `task.grade_...` keys): when it raises,
    hangs, dies or returns anything but a number in [0, 1] the reward is 0, and the failure is counted apart from wrong
    answers. A task may have an attribute `trusted = True` to be graded in the process that samples instead; that is for
    a `grade` that takes microseconds, has no side effects and cannot hang, whatever the completion.
    """

    @property
    def name(self) -> str:
        """The name under which the task was loaded or is shown."""
        ...

    @property
    def train(self) -> Sequence[Prompt]:
        """Prompts that reinforcement learning may use; the curriculum refers to them by index."""
        ...

    @property
    def held_out(self) -> Sequence[Prompt]:
        """Prompts for evaluation alone; a prefix of any length should have about the difficulty of the whole."""
        ...

    def grade(self, prompt: Prompt, completion: str) -> float:
        """Reward in [0, 1] of a decoded completion, special tokens such as `</think>` and `<eos>` included."""
        ...
