"""Rows of a run handed on to TensorBoard, Weights & Biases or trackio. The JSON Lines stay the truth.

    steps.jsonl, evals.jsonl ─► RunWatcher ─► queue ─► thread ─► tracker
                                                         └── raises? it is said in one line and not asked again

Everything a tracker does, its import included, happens in a thread of the launcher that dies with it: a tracker that is
slow, offline or broken takes nothing from the run. After a return to a checkpoint rows of the same steps come again:
TensorBoard is told to forget the old ones, the other two keep both. Weights & Biases and trackio were run as stubs only.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from scalerl_mini.config import Config
from scalerl_mini.training.run_folder import RunFolder

PROJECT = "scalerl-mini"
MOST_WAITING = 10_000  # rows; what comes after is dropped
CLOSE_S = 20.0  # longest wait for trackers at the end of a run


class Tracker(Protocol):
    """What is asked of each."""

    def begin(self, step: int) -> None:
        """The run goes on after `step`; what was logged of later steps is no longer part of it."""

    def log(self, step: int, values: dict[str, float]) -> None:
        """One row."""

    def close(self) -> None:
        """No more rows come."""


class TensorBoard:
    """Event files in the run folder's tensorboard/, one for each time that the run was started."""

    def __init__(self, folder: Path, config: Config) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary = event_pb2, summary_pb2
        self.writer = EventFileWriter(str(folder / "tensorboard"))

    def begin(self, step: int) -> None:
        start = self.event.SessionLog(status=self.event.SessionLog.START)
        self.writer.add_event(self.event.Event(wall_time=time.time(), step=step + 1, session_log=start))

    def log(self, step: int, values: dict[str, float]) -> None:
        rows = [self.summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        summary = self.summary.Summary(value=rows)
        self.writer.add_event(self.event.Event(wall_time=time.time(), step=step, summary=summary))
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A resumed run goes on under the same id."""

    def __init__(self, folder: Path, config: Config) -> None:
        import wandb

        options: dict[str, Any] = {"id": run_id(folder), "resume": "allow", "config": config.model_dump()}
        self.run = wandb.init(project=PROJECT, name=folder.name, dir=str(folder), **options)
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")  # its own counter must not go back, a run may

    def begin(self, step: int) -> None:
        """Nothing to be said."""

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log({**values, "step": step})

    def close(self) -> None:
        self.run.finish()


class Trackio:
    """A resumed run goes on under the same name."""

    def __init__(self, folder: Path, config: Config) -> None:
        import trackio

        name = f"{folder.name}-{run_id(folder)[:8]}"
        self.run = trackio.init(project=PROJECT, name=name, resume="allow", config=config.model_dump())

    def begin(self, step: int) -> None:
        """Nothing to be said."""

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)

    def close(self) -> None:
        self.run.finish()


KINDS: dict[str, Callable[[Path, Config], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


class Tracking:
    """Hands rows to the trackers that a configuration names. failures: a line for each that was given up."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._calls: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, daemon=True, name="trackers")

    def begin(self, step: int) -> None:
        """The run starts, or goes on, after `step`; its folder is there."""
        if self.config.runtime.trackers and self._thread.ident is None:
            self._thread.start()
        self._put("begin", step)

    def rows(self, group: str, rows: Iterable[dict[str, Any]]) -> None:
        """Rows of a log; their numbers get names as `group/loss`."""
        for row in rows:
            if isinstance(row.get("step"), int):  # somebody may have spoilt the log
                self._put("log", row["step"], dict(_numbers(row, group)))

    def close(self) -> None:
        """Let the trackers finish, but not for long."""
        if self._thread.is_alive():
            self._put("close")
            self._thread.join(CLOSE_S)

    def _put(self, call: str, *arguments: Any) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._calls.put_nowait((call, arguments))

    def _work(self) -> None:
        trackers: dict[str, Tracker] = {}
        for kind in self.config.runtime.trackers:
            with self._giving_up(kind):
                trackers[kind] = KINDS[kind](self.folder, self.config)
        call = ""
        while trackers and call != "close":
            call, arguments = self._calls.get()
            for name, tracker in list(trackers.items()):
                with self._giving_up(name, trackers):
                    getattr(tracker, call)(*arguments)

    @contextlib.contextmanager
    def _giving_up(self, name: str, trackers: dict[str, Tracker] | None = None) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            (trackers or {}).pop(name, None)
            reason = str(error).partition("\n")[0]
            self.failures.put(f"{name} was given up ({type(error).__name__}: {reason}); the run and its logs go on")


def run_id(folder: Path) -> str:
    """The same for a run and all its resumptions, another for a run that replaces it."""
    started = RunFolder(folder).read_record().get("started", "")
    return hashlib.sha256(f"{folder.absolute()} {started}".encode()).hexdigest()[:16]


def _numbers(row: dict[str, Any], group: str) -> Iterator[tuple[str, float]]:
    """Every number of a row under its path; what is no number is left out."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{group}/{key}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{group}/{key}", float(value)
