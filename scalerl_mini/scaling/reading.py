"""Curve input: a run folder, a CSV or a JSONL file, with the columns named or guessed - and what was guessed is said.

A run folder is read from its `evals.jsonl`; the row of step 0 is the measured R_0. Its compute is `device_hours`, except
for a run on the CPU (`run.json` says so), where hours measure the machine's other load and `generated_tokens` are taken.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.curve import Curve

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
EMPTY = {"", "nan", "null", "none", "na", "n/a", "-"}

Row = dict[str, object]


def read_curve(path: str | Path, x: str | None = None, y: str | None = None) -> Curve:
    """Read a curve; `x` and `y` name its columns (guessed when not given, see `Curve.notes`).

    Raises UserError naming the file, row and column at fault.
    """
    path = Path(path)
    if path.is_dir():
        return _read_run(path, x, y)
    if not path.exists():
        raise UserError(f"{path}: no such file or run folder")
    rows, columns = _read_rows(path)
    return _curve(path, rows, columns, x, y, path.stem)


def _read_run(folder: Path, x: str | None, y: str | None) -> Curve:
    evals = folder / "evals.jsonl"
    if not evals.exists():
        raise UserError(f"{folder}: no evals.jsonl in it, so not a run folder with evaluations")
    rows, columns = _read_rows(evals)
    run = folder / "run.json"
    device = json.loads(run.read_text()).get("device", "") if run.exists() else ""
    default = "generated_tokens" if str(device).startswith("cpu") and "generated_tokens" in columns else None
    curve = _curve(evals, rows, columns, x or default, y, folder.name)
    spread = [row.get("pass_rate_stderr") for row in rows if row.get("step") == 0]
    if curve.r0 is not None and spread and isinstance(spread[-1], int | float):
        curve = replace(curve, r0_sd=float(spread[-1]))
    return curve


def _read_rows(path: Path) -> tuple[list[Row], list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read as text ({error.__class__.__name__}): give a CSV or JSONL file"
        ) from error
    rows = _jsonl(path, text) if text.lstrip().startswith("{") else _csv(path, text)
    if not rows:
        raise UserError(f"{path}: no rows in it")
    return rows, list(dict.fromkeys(key for row in rows for key in row))


def _jsonl(path: Path, text: str) -> list[Row]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path} row {number}: not a JSON object ({error.msg} at column {error.colno})") from error
        if not isinstance(row, dict):
            raise UserError(f"{path} row {number}: a {type(row).__name__}, not a JSON object with named columns")
        rows.append({**row, "\0row": number})
    return rows


def _csv(path: Path, text: str) -> list[Row]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        return []
    mark = max(",;\t", key=lines[0][1].count)
    table = list(csv.reader((line for _, line in lines), delimiter=mark))
    header = [cell.strip() for cell in table[0]]
    first = 1
    if all(_is_number(cell) for cell in header):
        header, first = [f"column{i + 1}" for i in range(len(header))], 0
    rows: list[Row] = []
    for (number, _), cells in zip(lines[first:], table[first:], strict=True):
        if len(cells) > len(header):
            raise UserError(f"{path} row {number}: {len(cells)} cells but {len(header)} columns in the header")
        rows.append({**dict(zip(header, cells, strict=False)), "\0row": number})
    return rows


def _curve(path: Path, rows: list[Row], columns: list[str], x: str | None, y: str | None, name: str) -> Curve:
    columns = [c for c in columns if c != "\0row"]
    x_name = _column(path, columns, x, X_NAMES, 0, "--x")
    y_name = _column(path, columns, y, Y_NAMES, 1, "--y")
    notes = [f"x = {x_name}" + ("" if x else " (guessed)"), f"y = {y_name}" + ("" if y else " (guessed)")]
    rows = _last_run(path, rows, columns, x_name, notes)
    points = [(_number(path, row, x_name), _number(path, row, y_name)) for row in rows]
    full = [(c, s) for c, s in points if c is not None and s is not None]
    if len(full) < len(points):
        notes.append(f"{len(points) - len(full)} of {len(points)} rows have an empty cell and are skipped")
    for row, point in zip(rows, points, strict=True):
        if point[0] is not None and point[0] < 0:
            raise UserError(f"{path} row {row[chr(0) + 'row']}, column {x_name!r}: compute {point[0]:g} is negative")
    return Curve.of([p[0] for p in full], [p[1] for p in full], name=name, x=x_name, y=y_name, notes=notes)


def _column(path: Path, columns: list[str], wanted: str | None, usual: tuple[str, ...], place: int, option: str) -> str:
    if wanted is not None:
        if wanted in columns:
            return wanted
        raise UserError(f"{path}: no column {wanted!r}; it has {', '.join(columns)}")
    lower = {c.lower(): c for c in reversed(columns)}
    for name in usual:
        if name in lower:
            return lower[name]
    if len(columns) == 2:
        return columns[place]
    raise UserError(f"{path}: cannot guess the column, name it with {option}; it has {', '.join(columns)}")


def _last_run(path: Path, rows: list[Row], columns: list[str], x_name: str, notes: list[str]) -> list[Row]:
    """Drop the rows of an aborted earlier run: the counter goes back to its first value (every descent does so)."""
    counter = next((c for c in columns if c.lower() in COUNTERS), x_name)
    counts = [_number(path, row, counter) for row in rows]
    known = [(i, c) for i, c in enumerate(counts) if c is not None]
    drops = [j for (_, a), (j, b) in pairwise(known) if b < a]
    if not drops or len(drops) > 9 or any(counts[j] > known[0][1] for j in drops):  # type: ignore[operator]
        return rows
    starts = [known[0][0], *drops, known[-1][0] + 1]
    if min(b - a for a, b in pairwise(starts)) < 2:
        return rows  # an unsorted file, not a row of restarts
    notes.append(f"{counter} restarts {len(drops)} time(s): the first {drops[-1]} rows are of an aborted run, left out")
    return rows[drops[-1] :]


def _number(path: Path, row: Row, column: str) -> float | None:
    value = row.get(column)
    if value is None or (isinstance(value, str) and value.strip().lower() in EMPTY):
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    text = str(value).strip()
    if isinstance(value, bool | list | dict) or not _is_number(text.rstrip("%")):
        raise UserError(f"{path} row {row[chr(0) + 'row']}, column {column!r}: {text[:40]!r} is not a finite number")
    return float(text.rstrip("%"))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
