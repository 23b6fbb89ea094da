"""Where the rows of a task come from: files of JSON lines, or a data set by its Hugging Face name.

Each row comes with the place where it stands, so that whoever finds it wrong can say which one it is.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError

Row = tuple[str, dict[str, object]]  # (where it stands, its columns)
TRAIN = "train"
LOADERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".arrow": "arrow"}
SAVED = ("state.json", "dataset_dict.json")  # what `save_to_disk` leaves in a folder


@dataclass(frozen=True)
class Source:
    """Options of a task by their names. path, held_out_path: files of JSON lines.

    dataset: a Hugging Face name, a folder or a file that `datasets` reads; subset: its configuration; split,
    held_out_split: names of its splits, as `datasets` writes them ("train[:1000]" too).
    """

    path: str = ""
    held_out_path: str = ""
    dataset: str = ""
    subset: str = ""
    split: str = TRAIN
    held_out_split: str = ""

    def read(self) -> tuple[list[Row], list[Row] | None]:
        """(rows to train on, rows to hold out); None: hold out some of the first. No rows to train on where only the
        held-out ones are named: such a task can be evaluated. Raises UserError."""
        files = self.path or self.held_out_path
        if self.dataset and files:
            raise UserError("task.options: both a dataset and a path are named; name one of them")
        if not self.dataset and (self.subset or self.held_out_split or self.split != TRAIN):
            raise UserError("task.options: subset, split and held_out_split belong to a dataset; name it")
        if not (files or self.dataset) or (self.dataset and not (self.split or self.held_out_split)):
            raise UserError("task.options.path is missing; name a file of JSON lines, or a dataset with a split")
        if not self.dataset:
            held_out = read_lines(Path(self.held_out_path)) if self.held_out_path else None
            return read_lines(Path(self.path)) if self.path else [], held_out
        held_out = read_dataset(self.dataset, self.subset, self.held_out_split) if self.held_out_split else None
        return read_dataset(self.dataset, self.subset, self.split) if self.split else [], held_out


def read_lines(path: Path) -> list[Row]:
    """All objects of a file of JSON lines, empty lines apart. Raises UserError when one is none or there is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # other separators may stand inside a text
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a file of JSON lines in task.options") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; convert it, or unpack it") from None
    rows = [_read_line(line, f"{path}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise UserError(f"{path} has no lines; write one JSON object a line")
    return rows


def _read_line(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON ({error}); write one whole object a line") from None
    if not isinstance(row, dict):
        raise UserError(f'{where}: not an object; write {{"prompt": "...", "answer": "..."}}')
    return where, row


def read_dataset(name: str, subset: str, split: str) -> list[Row]:
    """All rows of a split, from the hub or its cache on this machine. Raises UserError, with the way round it."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"task.options.dataset = {name!r} needs datasets; pip install 'scalerl-mini[datasets]', or name a file in "
            "task.options.path"
        ) from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        found = _load(datasets, name, subset, split)
    except Exception as error:  # of the network, of the files, of a wrong name: each its own
        reason = " ".join(f"{type(error).__name__}: {error}"[:300].split())
        raise UserError(
            f"data set {name!r}, split {split!r}, cannot be loaded ({reason}); check task.options.dataset, subset and "
            "split; without a network, get its files elsewhere and name them: a folder in task.options.dataset, or "
            "JSON lines in task.options.path"
        ) from None
    rows: list[Row] = [(f"data set {name}, split {split}, row {n}", row) for n, row in enumerate(found)]
    if not rows:
        raise UserError(f"data set {name!r}, split {split!r}, has no rows; name another split")
    return rows


def _load(datasets: Any, name: str, subset: str, split: str) -> Any:
    """The rows of a split as an iterable of dictionaries."""
    path = Path(name)
    if any((path / file).is_file() for file in SAVED):
        saved = datasets.load_from_disk(name)
        return saved[split] if isinstance(saved, datasets.DatasetDict) else saved
    if path.is_file():
        return datasets.load_dataset(LOADERS[path.suffix], data_files={split: name}, split=split)
    return datasets.load_dataset(name, subset or None, split=split)
