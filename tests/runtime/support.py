"""What the runtime tests share: waiting, crash points, and spawned processes."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from scalerl_mini.runtime.segment_names import start_time


class Crash(BaseException):
    """Stands for SIGKILL inside a function: code without `except` and `finally` leaves the same memory behind."""


def eventually(predicate: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until the predicate holds; fail with `what` when it does not. Generous: the machine may be busy."""
    end = time.monotonic() + seconds
    while not predicate():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return start_time(pid) is not None


@contextmanager
def at_line(function: Callable[..., Any], number: int, action: Callable[[], None]) -> Iterator[list[int]]:
    """Run `action` once, before the `number`-th line event of `function`; yields the list of line numbers seen."""
    seen: list[int] = []

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == number:
                before = sys.gettrace()
                sys.settrace(None)
                action()
                sys.settrace(before)
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield seen
    finally:
        sys.settrace(before)


def crash() -> None:
    """An action for `at_line`."""
    raise Crash


@contextmanager
def spawned(target: Callable[..., None], *args: Any) -> Iterator[SpawnProcess]:
    """A spawned process that is killed and joined at the end, whatever happens."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=args)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()
