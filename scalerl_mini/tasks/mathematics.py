"""Mathematical problems graded by math-verify: `math`, and `gsm8k` in the form of that data set's files.

Both are `jsonl` with other defaults. A small sample of our own comes with the package, so that `math` works at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalerl_mini.tasks.base import Prompt
from scalerl_mini.tasks.jsonl import Jsonl

SAMPLE = Path(__file__).parent / "data" / "math_sample.jsonl"
GSM8K_MARK = "####"  # its answers end with "#### 72"


class MathProblems(Jsonl):
    """`jsonl` graded by math-verify; the bundled sample when no path is given. Options as of `jsonl`."""

    name = "math"

    def __init__(self, path: str = str(SAMPLE), held_out_prompts: int = 10, **options: object) -> None:
        super().__init__(**{"path": path, "held_out_prompts": held_out_prompts, "grading": "math", **options})  # type: ignore[arg-type]


class Gsm8k(Jsonl):
    """The files of GSM8K (columns question, answer); what stands after #### is the answer. Options as of `jsonl`."""

    name = "gsm8k"

    def __init__(self, path: str, **options: object) -> None:
        columns = {"prompt": "question", "grading": "math"}
        super().__init__(**{"path": path, **columns, **options})  # type: ignore[arg-type]
        self.train, self.held_out = [list(map(_with_result, prompts)) for prompts in (self.train, self.held_out)]


def _with_result(prompt: Prompt) -> Prompt:
    """The number after #### as the answer, thousands written without commas."""
    return replace(prompt, answer=prompt.answer.rpartition(GSM8K_MARK)[2].strip().replace(",", ""))
