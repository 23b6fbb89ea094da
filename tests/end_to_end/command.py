"""`scalerl-mini train` started as a user does, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from scalerl_mini.runtime import segment
from scalerl_mini.training.row_log import read_rows
from tests.forked import Ancestor
from tests.patience import patience

ENTRY = "import sys; from scalerl_mini.cli import main; sys.argv[0] = 'scalerl-mini'; sys.exit(main())"
CLOCKS = ("wall_seconds", "device_hours", "buffered_groups")
TINY = (
    "training.steps=6",
    "pipeline.prompts_per_step=4",
    "rollout.group_size=4",
    "rollout.slots=16",
    "evaluation.prompts=8",
    "evaluation.early_every=3",
    "evaluation.trainer_helps=false",
    "task.options={train_prompts=40, held_out_prompts=20}",
)


def spawn_launcher(words: list[str], console: Path) -> subprocess.Popen[bytes]:
    """`scalerl-mini` as a user starts it."""
    with console.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-c", ENTRY, *words],
            stdout=file,
            stderr=file,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # a signal to its group reaches all of its processes, and none of ours
        )


class Launched:
    """A running launcher. Everything it starts can be found, also after its death.

    Started as a user does, or in milliseconds by an `ancestor`; what it prints goes to the file `console`.
    """

    def __init__(
        self, *arguments: str, settings: tuple[str, ...] = (), console: Path, ancestor: Ancestor | None = None
    ) -> None:
        words = ["train", *arguments, *(word for setting in settings for word in ("--set", setting))]
        self.console = console
        self.process = ancestor.launch(words, console) if ancestor else spawn_launcher(words, console)
        self.family: set[psutil.Process] = set()

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.console.read_text()

    @property
    def segments(self) -> list[Path]:
        """Shared memory of this launcher's runs."""
        return list(segment.SHM_DIR.glob(f"scalerl-{self.process.pid}-*"))

    def role(self, function: str) -> psutil.Process:
        """The child of the launcher that writes the log of this name: "trainer" or "generator-0"."""
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(Path(file.path).name == f"{function}.log" for file in child.open_files()):
                    return child
        raise AssertionError(f"no {function} among the children")

    def wait_for(self, predicate: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Wait until something has happened in the run; fails when the run ends first."""
        start = time.monotonic()
        while not predicate():
            assert self.process.poll() is None, f"ended before {what}: {self.text[-2000:]}"
            assert time.monotonic() < start + patience(seconds), f"not within {seconds} s: {what}"
            with contextlib.suppress(psutil.NoSuchProcess):
                self.family |= set(psutil.Process(self.process.pid).children(recursive=True))
            time.sleep(0.02)

    def end(self, seconds: float = 60.0) -> tuple[int, str]:
        """Exit code, and what was printed."""
        start = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() < start + patience(seconds), f"still running after {seconds} s: {self.text[-2000:]}"
            time.sleep(0.02)
        assert self.process.returncode is not None
        return self.process.returncode, self.text

    def left_behind(self) -> list[Any]:
        """Processes that are alive and segments that exist after the end."""
        gone, alive = psutil.wait_procs(self.family, timeout=patience(10))
        return [*alive, *self.segments]


def steps_done(folder: Path) -> int:
    """Rows of steps.jsonl."""
    return len(read_rows(folder / "steps.jsonl"))


def timeless(path: Path) -> list[dict[str, Any]]:
    """Rows of a log without what a clock says."""
    return [
        {key: value for key, value in row.items() if key not in CLOCKS and not key.endswith("_s")}
        for row in read_rows(path)
    ]
