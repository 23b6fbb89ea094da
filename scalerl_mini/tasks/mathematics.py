"""Mathematical problems graded by math-verify: `math`, and `gsm8k` in the form of that data set's files.

Both are `jsonl` with other defaults. A small sample of our own comes with the package, so that `math` works at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalerl_mini.tasks.base import Prompt
from scalerl_mini.tasks.jsonl import Jsonl

SAMPLE = Path(__file__).parent / "data" / "math_sample.jsonl"
HUB_NAME = "openai/gsm8k"
GSM8K_MARK = "####"  # its answers end with "#### 72"


class MathProblems(Jsonl):
    """`jsonl` graded by math-verify; the bundled sample, 10 of it held out, when neither files nor a data set are named.
    Options as of `jsonl`."""

    name = "math"

    def __init__(self, **options: object) -> None:
        if not options.keys() & {"path", "held_out_path", "dataset"}:
            options = {"path": str(SAMPLE), "held_out_prompts": 10, **options}
        super().__init__(**{"grading": "math", **options})  # type: ignore[arg-type]


class Gsm8k(Jsonl):
    """GSM8K, its files or `dataset = "openai/gsm8k"` (columns question, answer); what stands after #### is the answer.
    Options as of `jsonl`."""

    name = "gsm8k"

    def __init__(self, **options: object) -> None:
        columns = {"prompt": "question", "grading": "math"}
        subset = {"subset": "main"} if options.get("dataset") == HUB_NAME else {}
        super().__init__(**{**columns, **subset, **options})  # type: ignore[arg-type]
        self.train, self.held_out = [list(map(_with_result, prompts)) for prompts in (self.train, self.held_out)]


def _with_result(prompt: Prompt) -> Prompt:
    """The number after #### as the answer, thousands written without commas."""
    return replace(prompt, answer=prompt.answer.rpartition(GSM8K_MARK)[2].strip().replace(",", ""))
