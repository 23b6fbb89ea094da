"""Curve input: a run folder, a CSV or a JSONL file, with the columns named or guessed - and what was guessed is said.

A run folder is read from its `evals.jsonl`; the row of step 0 is the measured R_0. Its compute is `device_hours`, except
for a run on the CPU (`run.json` says so), where hours measure the machine's other load and `generated_tokens` are taken.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import LOWEST, NO_PASS_RATE, Curve
from scalerl_mini.scaling.downstream import agreement
from scalerl_mini.scaling.rows import LINE, Row, number_in, read_rows

X_NAMES = (
    *("device_hours", "gpu_hours", "gpu_kilohours", "compute", "flops", "generated_tokens", "trained_tokens", "tokens"),
    *("hours", "step", "global_step", "steps", "policy_version", "iteration", "epoch"),
)
Y_NAMES = (
    "pass_rate",
    "eval_acc",
    "eval_accuracy",
    "accuracy",
    "acc",
    "score",
    "eval_score",
    "mean_reward",
    "reward_avg",
)
COUNTERS = ("step", "global_step", "steps", "policy_version", "iteration")


def read_curve(path: str | Path, x: str | None = None, y: str | None = None) -> Curve:
    """Read a curve; `x` and `y` name its columns (guessed when not given, see `Curve.notes`).

    Raises UserError naming the file, row and column at fault.
    """
    path = Path(path)
    if path.is_dir():
        return _read_run(path, x, y)
    if not path.exists():
        raise UserError(f"{path}: no such file or run folder")
    rows, columns = read_rows(path)
    return _curve(path, rows, columns, x, y, path.stem)


def _read_run(folder: Path, x: str | None, y: str | None) -> Curve:
    evals = folder / "evals.jsonl"
    if not evals.exists():
        raise UserError(f"{folder}: no evals.jsonl in it, so not a run folder with evaluations")
    rows, columns = read_rows(evals)
    if x is None and "generated_tokens" in columns and _device(folder).startswith("cpu"):
        x = "generated_tokens"
    curve = _curve(evals, rows, columns, x, y, folder.resolve().name)
    spread = [row.get(f"{curve.y}_stderr") for row in rows if row.get("step") == 0]
    if curve.r0 is not None and spread and isinstance(spread[-1], int | float):
        curve = replace(curve, r0_sd=float(spread[-1]))
    return replace(curve, downstream=agreement(rows))


def _device(folder: Path) -> str:
    """The device that `run.json` names ("" when there is no such file)."""
    path = folder / "run.json"
    if not path.exists():
        return ""
    try:
        return str(json.loads(path.read_text())["device"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: names no device ({error}), so name the column of compute with --x") from error


def _curve(path: Path, rows: list[Row], columns: list[str], x: str | None, y: str | None, name: str) -> Curve:
    x_name = _column(path, columns, x, X_NAMES, 0, "--x")
    y_name = _column(path, columns, y, Y_NAMES, 1, "--y")
    notes = [f"x = {x_name}" + ("" if x else " (guessed)"), f"y = {y_name}" + ("" if y else " (guessed)")]
    rows = _last_run(path, rows, columns, x_name, notes)
    points = [(number_in(path, row, x_name), number_in(path, row, y_name, percent=True)) for row in rows]
    full = [(c, s) for c, s in points if c is not None and s is not None]
    if len(full) < len(points):
        notes.append(f"{len(points) - len(full)} of {len(points)} rows have an empty cell and are skipped")
    for row, (compute, score) in zip(rows, points, strict=True):
        if compute is not None and compute < 0:
            raise UserError(f"{path} row {row[LINE]}, column {x_name!r}: compute {compute:g} is negative")
        if score is not None and not LOWEST <= score <= 100.0:
            raise UserError(f"{path} row {row[LINE]}, column {y_name!r}: {score:g} {NO_PASS_RATE}")
    return Curve.of([p[0] for p in full], [p[1] for p in full], name=name, x=x_name, y=y_name, notes=notes)


def _column(path: Path, columns: list[str], wanted: str | None, usual: tuple[str, ...], place: int, option: str) -> str:
    if wanted is not None:
        if wanted not in columns:
            raise UserError(f"{path}: no column {wanted!r}; it has {', '.join(columns)}")
        return _only(path, columns, wanted)
    if len(columns) < 2:
        raise UserError(f"{path}: needs a column of compute and one of the pass rate; it has {', '.join(columns)}")
    lower = {c.lower(): c for c in reversed(columns)}
    for name in usual:
        if name in lower:
            return _only(path, columns, lower[name])
    if len(columns) == 2:
        return _only(path, columns, columns[place])
    raise UserError(f"{path}: cannot guess the column, name it with {option}; it has {', '.join(columns)}")


def _only(path: Path, columns: list[str], name: str) -> str:
    """The name, unless two columns have it."""
    if columns.count(name) > 1:
        raise UserError(f"{path}: {columns.count(name)} columns are called {name!r}; rename all but one")
    return name


def _last_run(path: Path, rows: list[Row], columns: list[str], x_name: str, notes: list[str]) -> list[Row]:
    """Drop the rows of an aborted earlier run: the counter goes back to its first value (every descent does so)."""
    counter = next((c for c in columns if c.lower() in COUNTERS), x_name)
    counts = [number_in(path, row, counter) for row in rows]
    known = [(i, c) for i, c in enumerate(counts) if c is not None]
    drops = [j for (_, a), (j, b) in pairwise(known) if b < a]
    if not drops or len(drops) > 9 or any(counts[j] > known[0][1] for j in drops):  # type: ignore[operator]
        return rows
    starts = [known[0][0], *drops, known[-1][0] + 1]
    if min(b - a for a, b in pairwise(starts)) < 2:
        return rows  # an unsorted file, not a row of restarts
    notes.append(f"{counter} restarts {len(drops)} time(s): the first {drops[-1]} rows are of an aborted run, left out")
    return rows[drops[-1] :]
