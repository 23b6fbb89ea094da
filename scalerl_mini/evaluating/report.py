"""An evaluation as a table to read and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scalerl_mini.evaluating.measures import Estimate, Measures
from scalerl_mini.evaluating.result import Evaluation, Line, TaskResult

LABEL, LONGEST_LABEL, CELL = 14, 40, 15  # widths of columns


def table(evaluation: Evaluation) -> str:
    """For people."""
    return "\n".join(_lines(evaluation)) + "\n"


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """Plain values; null for a standard error that cannot be had (`Estimate`)."""
    return {
        "model": evaluation.model,
        "policy_version": evaluation.policy_version,
        **evaluation.settings,
        "seconds": round(evaluation.seconds, 3),
        "tasks": [_task_json(result) for result in evaluation.tasks],
    }


def _task_json(result: TaskResult) -> dict[str, Any]:
    same = ("prompts", "samples_per_prompt", "mean_length", "entropy", "grading_errors", "grading_timeouts")
    return {
        "task": result.task,
        "options": result.options,
        "downstream": result.downstream,
        **_line_json(result.overall),
        "mean_stderr_same_prompts": result.summary["pass_rate_stderr"],
        **{key: result.summary[key] for key in same},
        "levels": {line.label: _line_json(line) for line in result.levels},
    }


def _line_json(line: Line) -> dict[str, Any]:
    measures: Measures = line.measures
    return {
        "prompts": measures.prompts,
        "mean": measures.mean.value,
        "mean_stderr": measures.mean.stderr,
        "pass_at_k": {str(k): {"value": one.value, "stderr": one.stderr} for k, one in measures.pass_at_k.items()},
        "truncation_rate": line.truncated,
        "interruption_rate": line.interrupted,
    }


def _lines(evaluation: Evaluation) -> Iterator[str]:
    settings = evaluation.settings
    budget = settings["thinking_tokens"]
    thinking = f", thinking up to {budget[1]}" if budget else ""
    yield f"{evaluation.model}, policy version {evaluation.policy_version}"
    yield (
        f"{settings['samples']} samples a prompt, temperature {settings['temperature']:g}, up to "
        f"{settings['max_new_tokens']} tokens{thinking}, seed {settings['seed']}, {evaluation.seconds:.0f} s"
    )
    for result in evaluation.tasks:
        yield ""
        yield from _task_lines(result, settings["samples"])
    yield ""
    yield "+- is one standard error for other prompts of this kind (spread between prompts)"


def _task_lines(result: TaskResult, samples: int) -> Iterator[str]:
    ks = result.overall.measures.pass_at_k
    heads = (f"mean@{samples}", *(f"pass@{k}" for k in ks))
    yield f"{result.task}{' (downstream)' if result.downstream else ''}"
    lines = (result.overall, *result.levels)
    width = min(max(LABEL, *(len(line.label) for line in lines)), LONGEST_LABEL)
    yield _row(" " * width, "prompts", heads, "cut", "interrupted")
    for line in lines:
        cells = tuple(map(_cell, (line.measures.mean, *line.measures.pass_at_k.values())))
        label = f"{line.label[:width]:<{width}}"
        yield _row(label, str(line.measures.prompts), cells, f"{line.truncated:.1%}", f"{line.interrupted:.1%}")
    summary = result.summary
    yield f"  mean length {summary['mean_length']:.1f} tokens; asked again, the same prompts: +- " + (
        f"{summary['pass_rate_stderr']:.3f}"
    )
    errors, timeouts = summary["grading_errors"], summary["grading_timeouts"]
    if errors + timeouts:
        yield f"  grading failed: {errors} errors, {timeouts} time-outs, counted as wrong answers above"


def _row(label: str, prompts: str, cells: tuple[str, ...], cut: str, interrupted: str) -> str:
    middle = "".join(f"{cell:>{CELL}}" for cell in cells)
    return f"  {label}{prompts:>7}{middle}{cut:>7}{interrupted:>12}"


def _cell(estimate: Estimate) -> str:
    error = "-" if estimate.stderr is None else f"{estimate.stderr:.3f}"
    return f"{estimate.value:.3f} +- {error}"
