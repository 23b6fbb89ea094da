"""What an evaluation found: for each task all its prompts, and its prompts by level."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalerl_mini.evaluating.measures import Measures

ALL = "all"


@dataclass(frozen=True)
class Line:
    """Prompts that are reported together. truncated, interrupted: shares of their completions."""

    label: str
    measures: Measures
    truncated: float
    interrupted: float

    @classmethod
    def of(cls, label: str, rows: np.ndarray, ks: tuple[int, ...]) -> Line:
        """rows: result rows of the evaluation board."""
        measures = Measures.of(rows["reward"], ks)
        return cls(label, measures, float(rows["truncated"].mean()), float(rows["interrupted"].mean()))


@dataclass(frozen=True)
class TaskResult:
    """levels: in the order of their names, numbers as numbers; empty when all prompts have the same. summary: the figures
    that a run writes into evals.jsonl, of these prompts."""

    task: str
    options: dict[str, Any]
    downstream: bool
    overall: Line
    levels: list[Line]
    summary: dict[str, Any]

    @classmethod
    def of(
        cls,
        task: str,
        options: dict[str, Any],
        downstream: bool,
        rows: np.ndarray,
        levels: list[str],
        ks: tuple[int, ...],
        summary: dict[str, Any],
    ) -> TaskResult:
        """rows: result rows, one a prompt. levels: of each prompt."""
        labels = sorted(set(levels), key=_in_order)
        chosen = [(label, np.array([level == label for level in levels])) for label in labels if len(labels) > 1]
        by_level = [Line.of(label, rows[mask], ks) for label, mask in chosen]
        return cls(task, options, downstream, Line.of(ALL, rows, ks), by_level, summary)


def _in_order(label: str) -> list[tuple[int, str]]:
    """ "2 digits" before "10 digits": a sort key of texts and numbers in turn."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", label)]


@dataclass(frozen=True)
class Evaluation:
    """Everything that is reported. settings: how it was sampled, plain values for JSON. seconds: of sampling and grading."""

    model: str
    policy_version: int
    settings: dict[str, Any]
    tasks: list[TaskResult]
    seconds: float
