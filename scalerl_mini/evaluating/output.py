"""Where results go, checked before anything is sampled, and what is seen meanwhile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError
from scalerl_mini.training.disk import write_whole

STDOUT = "-"


def check_writable(json_path: str | None) -> None:
    """Raise UserError when a file could not be written there; None and "-" are no files."""
    if json_path in (None, STDOUT):
        return
    path = Path(str(json_path))
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--json {json_path}: cannot write a file there; choose a file in a folder that exists")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """The whole file or none. Raises UserError when the disk does not take it."""
    try:
        write_whole(path, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"--json {path}: {error.strerror}; choose another file") from error


@contextmanager
def stdout_kept() -> Iterator[None]:
    """What anybody prints inside, vLLM or a task of the user's own, goes to stderr: stdout is the result's."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar of prompts done on stderr where that is a terminal; else nothing."""
    if not sys.stderr.isatty():
        yield lambda done, prompts: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("prompts", total=None)
        yield lambda done, prompts: bar.update(task, completed=done, total=prompts)
