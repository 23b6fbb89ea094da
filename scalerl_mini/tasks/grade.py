"""One grade, whatever a task's code does: a number in [0, 1], or the reason why there is none."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from scalerl_mini.tasks.base import Prompt, Task

LONGEST_REASON = 300


class Verdict(IntEnum):
    """How the grading of a completion went; a wrong answer is GRADED, with reward 0."""

    GRADED = 0
    ERROR = 1
    TIMEOUT = 2


@dataclass(frozen=True, slots=True)
class Grade:
    """Reward in [0, 1]; 0 with the reason when the grader failed or was too slow."""

    reward: float
    verdict: Verdict = Verdict.GRADED
    reason: str = ""


def grade(task: Task, prompt: Prompt, completion: str) -> Grade:
    """`task.grade`, every exception and every value that is no reward turned into an ERROR. `sys.exit` counts as one."""
    try:
        value = task.grade(prompt, completion)
        if isinstance(value, numbers.Real) and 0 <= value <= 1:  # bool and numpy scalars included, NaN not
            return Grade(float(value))
    except (Exception, SystemExit) as error:
        return failed(f"{type(error).__name__}: {_text(error)}")
    return failed(f"grade returned {_text(value)}, which is no number in [0, 1]")


def failed(reason: str) -> Grade:
    """An ERROR with its reason, in one short line that can be printed anywhere."""
    line = " ".join(reason[: 10 * LONGEST_REASON].split())[:LONGEST_REASON]
    return Grade(0.0, Verdict.ERROR, line.encode("utf-8", "backslashreplace").decode())


def _text(value: Any) -> str:
    """What a value says of itself - and that is a task's code as well."""
    try:
        return str(value) if isinstance(value, BaseException) else repr(value)[:LONGEST_REASON]
    except Exception:
        return f"a {type(value).__name__}"
