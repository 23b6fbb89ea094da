"""The run folder: what a run leaves behind, in plain TOML, JSON Lines and safetensors.

config.toml  run.json  steps.jsonl  evals.jsonl  rollouts/*.jsonl  checkpoints/step-NNN/  logs/*.log
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError

MARKER = "run.json"


class RunFolder:
    """Paths and appending writers of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def steps(self) -> Path:
        return self.path / "steps.jsonl"

    @property
    def evals(self) -> Path:
        return self.path / "evals.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def check(self, overwrite: bool) -> None:
        """Raise UserError unless a run can be written here; changes nothing."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"output folder {self.path} is a file; choose another --out")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not (self.path / MARKER).exists():
                raise UserError(f"output folder {self.path} is not empty and not a run; choose another --out")
            if not overwrite:
                raise UserError(
                    f"{self.path} already holds a run; continue it with --resume {self.path}, "
                    "replace it with --overwrite, or choose another --out"
                )
        parent = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        if not os.access(parent, os.W_OK):
            raise UserError(f"cannot write to {parent}; choose another --out or change its permissions")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder and hold it for this process alone; the kernel lets go when the process dies.

        Raises UserError when another process trains in it, or when it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise UserError(f"cannot create run folder {self.path}: {error.strerror}; choose another --out") from error
        try:
            _hold(descriptor, self.path)
            yield
        finally:
            os.close(descriptor)

    def create(self, config_toml: str, record: dict[str, Any]) -> None:
        """Make an empty run; a run that was there is removed. Raises UserError when that fails."""
        try:
            for old in self.path.iterdir():
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            for folder in (self.path / "rollouts", self.checkpoints, self.logs):
                folder.mkdir()
            self.config.write_text(config_toml, encoding="utf-8")
            self.write_record(record)
        except OSError as error:
            raise UserError(f"cannot create run folder {self.path}: {error.strerror}; choose another --out") from error

    def read_record(self) -> dict[str, Any]:
        """run.json as it stands."""
        return json.loads((self.path / MARKER).read_text(encoding="utf-8"))

    def write_record(self, record: dict[str, Any]) -> None:
        """Replace run.json in one move."""
        temporary = self.path / (MARKER + ".tmp")
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, self.path / MARKER)

    def update_record(self, **changes: Any) -> None:
        """Change some keys of run.json; launcher and trainer both do, one after the other."""
        with (self.path / "config.toml").open() as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            self.write_record(self.read_record() | changes)

    def rewind(self, version: int) -> None:
        """Before a resume at `version`: rows of later steps leave the logs and are kept aside in *.rewound.jsonl."""
        for path in (self.steps, self.evals):
            rows = read_rows(path)
            for row in rows:
                if row["step"] > version:
                    append_row(path.with_suffix(".rewound.jsonl"), row)
            kept = [json.dumps(row) + "\n" for row in rows if row["step"] <= version]
            temporary = path.with_suffix(".tmp")
            temporary.write_text("".join(kept), encoding="utf-8")
            os.replace(temporary, path)

    def write_rollouts(self, step: int, rows: list[dict[str, Any]]) -> None:
        """A sample of completions with rewards, for reading."""
        path = self.path / "rollouts" / f"step-{step:05d}.jsonl"
        path.unlink(missing_ok=True)
        for row in rows:
            append_row(path, row)


def _hold(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"a run is going on in {path}; wait for it or choose another --out") from None


def append_row(path: Path, row: dict[str, Any]) -> None:
    """One JSON object on one line, in one write; numbers that are not finite become null."""
    line = json.dumps({key: _plain(value) for key, value in row.items()}, allow_nan=False) + "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All whole rows; a torn last line, left by a kill or a reader that came in between, is skipped."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
