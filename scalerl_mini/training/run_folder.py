"""The run folder: what a run leaves behind, in plain TOML, JSON Lines and safetensors.

config.toml  run.json  steps.jsonl  evals.jsonl  rollouts/*.jsonl  checkpoints/step-NNN/  logs/*.log
"""

from __future__ import annotations

import datetime
import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.disk import write_whole, writing
from scalerl_mini.training.row_log import RowLog, append_row, rewind_rows

MARKER = "run.json"
_ROLLOUTS = re.compile(r"step-(\d+)\.jsonl")

log = logging.getLogger(__name__)


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

    @cached_property
    def step_log(self) -> RowLog:
        """The trainer's writer of steps.jsonl."""
        return RowLog(self.steps)

    @cached_property
    def eval_log(self) -> RowLog:
        """The trainer's writer of evals.jsonl."""
        return RowLog(self.evals)

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
            write_whole(self.config, config_toml)
            write_whole(self.path / MARKER, json.dumps(record, indent=2) + "\n")
        except OSError as error:
            raise UserError(f"cannot create run folder {self.path}: {error.strerror}; choose another --out") from error

    def read_record(self) -> dict[str, Any]:
        """run.json as it stands. Raises UserError when it cannot be read."""
        path = self.path / MARKER
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not valid JSON"
            raise UserError(f"cannot read {path} ({reason}); restore it, or write {{}} into it") from error
        if not isinstance(record, dict):
            raise UserError(f"cannot read {path} (it is not a JSON object); restore it, or write {{}} into it")
        return record

    def write_record(self, record: dict[str, Any]) -> None:
        """Replace run.json in one move."""
        with writing(self.path / MARKER):
            write_whole(self.path / MARKER, json.dumps(record, indent=2) + "\n")

    def update_record(self, **changes: Any) -> None:
        """Change some keys of run.json; launcher and trainer both do, one after the other."""
        with (self.path / "config.toml").open() as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            self.write_record(self.read_record() | changes)

    def note(self, **changes: Any) -> None:
        """`update_record`, where something worse has happened: that the disk does not take it is only said."""
        try:
            self.update_record(**changes)
        except (OSError, UserError) as error:
            log.warning(
                "not in run.json: %s (%s)", ", ".join(f"{key} = {value}" for key, value in changes.items()), error
            )

    def rewind(self, version: int) -> dict[str, int]:
        """Before the run goes on at `version`: what is of later steps leaves it and is kept aside, under names that
        nobody reads. Returns the rows that stay in each log."""
        for path in (self.path / "rollouts").glob("step-*.jsonl"):
            if (found := _ROLLOUTS.fullmatch(path.name)) and int(found[1]) > version:
                os.replace(path, path.with_suffix(".rewound.jsonl"))
        for checkpoint in list_checkpoints(self.checkpoints):
            if version_of(checkpoint) > version:  # damaged, or it would be the one to go on from
                aside = checkpoint.with_name(checkpoint.name + ".damaged")
                shutil.rmtree(aside, ignore_errors=True)
                os.rename(checkpoint, aside)
        return {path.stem: rewind_rows(path, version) for path in (self.steps, self.evals)}

    def flush_logs(self) -> dict[str, int]:
        """Have both logs on the disk; returns their rows."""
        for rows in (self.step_log, self.eval_log):
            rows.flush()
        return {rows.path.stem: rows.rows for rows in (self.step_log, self.eval_log)}

    def write_rollouts(self, step: int, rows: list[dict[str, Any]]) -> None:
        """A sample of completions with rewards, for reading."""
        path = self.path / "rollouts" / f"step-{step:05d}.jsonl"
        with writing(path):
            path.unlink(missing_ok=True)
            for row in rows:
                append_row(path, row)


def timestamp() -> str:
    """Now, as run.json writes it: UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _hold(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"a run is going on in {path}; wait for it or choose another --out") from None
