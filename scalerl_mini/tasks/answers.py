"""Comparing a completion's answer with the one that was expected: as text, as a number, or as mathematics.

Only what follows the thinking part is looked at. Mathematics is read by math-verify, whose Sympy may take any time and
memory: such a task is graded in worker processes that are killed at a limit (`rollout.grading`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.grading import END_OF_THINKING

START_OF_THINKING = "<think>"
ENDS = ("<eos>", "</s>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>")
NUMBER = re.compile(r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+|/[1-9]\d*)?")  # never divided by 0, no exponent
MOST_DIGITS = 1000
MATH_TIMEOUT_S = 2

Compare = Callable[[str, str], float]  # (expected answer, text of the completion's answer) -> reward in [0, 1]


def answer_text(completion: str, thinking: bool = False) -> str | None:
    """The text after the last `</think>`, up to the end of the text; None when thinking was begun and never closed.

    thinking: the prompt has opened the thinking part, so that a completion without `</think>` has no answer.
    """
    for end in ENDS:
        completion = completion.partition(end)[0]
    _, closed, answer = completion.rpartition(END_OF_THINKING)
    if not closed and (thinking or START_OF_THINKING in completion):
        return None
    return answer.strip()


def exact(expected: str, text: str) -> float:
    """1.0 iff both are the same text, spaces at either end apart."""
    return float(expected.strip() == text.strip())


def last_number(text: str) -> Fraction | None:
    """The last number of a text: -3, 1,250, 2.50 or 3/4, exactly; None when there is none or it is absurdly long."""
    found = NUMBER.findall(text)
    if not found or len(found[-1]) > MOST_DIGITS:
        return None
    return Fraction(found[-1].replace(",", "").replace("−", "-"))


def number(expected: str, text: str) -> float:
    """1.0 iff the last numbers of both are equal: 0.50 is 1/2, and 1,250 is 1250."""
    value = last_number(text)
    return float(value is not None and value == last_number(expected))


def math(expected: str, text: str) -> float:
    """1.0 iff math-verify finds both mathematically equal. An expected answer in plain LaTeX needs no dollar signs."""
    from math_verify import parse, verify

    wanted = parse(
        expected if "$" in expected or "\\boxed" in expected else f"${expected}$", parsing_timeout=MATH_TIMEOUT_S
    )
    return float(verify(wanted, parse(text, parsing_timeout=MATH_TIMEOUT_S), timeout_seconds=MATH_TIMEOUT_S))


def check_math_verify() -> None:
    """Import it now, outside any time limit. Raises UserError when it is not installed."""
    try:
        import math_verify  # noqa: F401
    except ImportError:
        raise UserError("grading 'math' needs math-verify; pip install 'scalerl-mini[math]'") from None
