"""JSON Lines logs: one object a line, appended by one process, readable at any time, whole after any kill.

A kill or a full disk can tear the last line only. A line that is torn further up was torn by somebody else; readers
then say where, for what follows it must not be thrown away in silence.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

from scalerl_mini.errors import UserError
from scalerl_mini.training.disk import write_whole, writing


class RowLog:
    """A log that this process appends to and nobody else changes: that it is deleted, replaced or cut is noticed at the
    next row, and ends the run before a curve with a gap is drawn from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = len(read_rows(path))
        self._file: BinaryIO | None = None

    def append(self, row: dict[str, Any]) -> None:
        """Add one row. Raises UserError when the disk does not take it (the log is then as before) or the file is no
        longer the one it was."""
        with writing(self.path):
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
                self._size = self.path.stat().st_size
            self._check()
            line = _line(row)
            try:
                _write_all(self._file.fileno(), line)
            except OSError:
                os.ftruncate(self._file.fileno(), self._size)
                raise
            self._size += len(line)
            self.rows += 1

    def flush(self) -> None:
        """Have all rows on the disk, before a checkpoint that counts on them."""
        if self._file is not None:
            with writing(self.path):
                os.fsync(self._file.fileno())

    def _check(self) -> None:
        assert self._file is not None
        own = os.fstat(self._file.fileno())
        there = self.path.stat() if self.path.exists() else None
        if there is None or not os.path.samestat(there, own) or there.st_size != self._size:
            what = "was deleted" if there is None else "was replaced or changed by somebody else"
            raise UserError(
                f"{self.path} {what} while the run went on; put it back if you can, then go on with train --resume"
            )


def append_row(path: Path, row: dict[str, Any]) -> None:
    """One JSON object on one line; numbers that are not finite become null."""
    with path.open("ab") as file:
        file.write(_line(row))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows; a torn last line, left by a kill or a reader that came in between, is skipped.

    Raises UserError for any other line that is not a JSON object.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:  # also what is not UTF-8
            if number < len(lines):
                raise UserError(_bad_line(path, number)) from None
            break
        if not isinstance(rows[-1], dict):
            raise UserError(_bad_line(path, number))
    return rows


def rewind_rows(path: Path, version: int) -> int:
    """Rows of steps after `version` leave the log and are kept aside in *.rewound.jsonl; returns how many stay."""
    rows = read_rows(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("step"), int):
            raise UserError(_bad_line(path, number))
    kept = [row for row in rows if row["step"] <= version]
    with writing(path):
        for row in rows:
            if row["step"] > version:
                append_row(path.with_suffix(".rewound.jsonl"), row)
        write_whole(path, b"".join(map(_line, kept)))
    return len(kept)


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps({key: _plain(value) for key, value in row.items()}, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _write_all(descriptor: int, line: bytes) -> None:
    """One write, and more where the first was short: a disk that fills up takes a part and refuses the rest."""
    while line:
        line = line[os.write(descriptor, line) :]


def _bad_line(path: Path, number: int) -> str:
    return f"{path}, line {number} is not a row of this log; mend or delete that line, then go on with train --resume"
