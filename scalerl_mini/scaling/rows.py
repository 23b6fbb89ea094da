"""The rows of a CSV or JSONL file, each with the number of the line that it starts on, and the numbers in their cells."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

from scalerl_mini.errors import UserError

EMPTY = {"", "nan", "null", "none", "na", "n/a", "-"}
LINE = "\0line"  # the key under which a row keeps its line number; no column can be called that

Row = dict[str, object]


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """(rows, column names in order; a CSV header that repeats a name repeats it here). Raises UserError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read as text ({error.__class__.__name__}): give a CSV or JSONL file"
        ) from error
    if text.lstrip().startswith("["):
        raise UserError(f"{path}: one JSON list; give JSONL, an object with named columns on each line")
    rows, columns = _jsonl(path, text) if text.lstrip().startswith("{") else _csv(path, text)
    if not rows:
        raise UserError(f"{path}: no rows in it")
    return rows, columns


def _jsonl(path: Path, text: str) -> tuple[list[Row], list[str]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} row {number}: not a JSON object ({error})") from error
        if not isinstance(row, dict):
            raise UserError(f"{path} row {number}: a {type(row).__name__}, not a JSON object with named columns")
        rows.append({**row, LINE: number})
    return rows, [key for key in dict.fromkeys(key for row in rows for key in row) if key != LINE]


def _csv(path: Path, text: str) -> tuple[list[Row], list[str]]:
    table = _table(path, text)
    if not table:
        return [], []
    header = [cell.strip() for cell in table[0][1]]
    if all(_is_number(cell) for cell in header):
        header = [f"column{i + 1}" for i in range(len(header))]
    else:
        table = table[1:]
    rows: list[Row] = []
    for number, cells in table:
        if len(cells) > len(header):
            raise UserError(f"{path} row {number}: {len(cells)} cells but {len(header)} columns in the header")
        rows.append({**dict(zip(header, cells, strict=False)), LINE: number})
    return rows, header


def _table(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """(first line, cells) of every record that is neither blank nor a `#` comment; a quoted cell may span lines."""
    lines = ["" if line.startswith("#") else line for line in text.split("\n")]
    mark = max(",;\t", key=next((line for line in lines if line.strip()), "").count)
    table, number = [], 1
    reader = csv.reader(lines, delimiter=mark)
    try:
        for cells in reader:
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                table.append((number, cells))
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path} row {number}: not readable as CSV ({error})") from error
    return table


def number_in(path: Path, row: Row, column: str, percent: bool = False) -> float | None:
    """The number in a cell, None when the cell is empty. `percent`: `12%` is allowed and is 0.12. Raises UserError."""
    value = row.get(column)
    if value is None or (isinstance(value, str) and value.strip().lower() in EMPTY):
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    text = str(value).strip()
    digits = text.removesuffix("%") if percent else text
    if isinstance(value, bool | list | dict) or not _is_number(digits):
        raise UserError(
            f"{path} row {row[LINE]}, column {column!r}: {text[:40]!r} is not a finite number such as 1234.5"
        )
    return float(digits) / 100.0 if digits != text else float(digits)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
