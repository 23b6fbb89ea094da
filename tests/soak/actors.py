"""A run whose processes start in milliseconds and dwell where it hurts, for a soak that kills them by the hundred.

`prepare` changes this process and so every process forked from it: roles are forked instead of spawned, the engine is the
fake one, and sleeps lie in the middle of a publish, a load, a step, a flush to the disk and a
start, so that a signal sent at random moments finds each of them. Rows of steps.jsonl say which prompts were trained and
a digest of their tokens. Supervisor, launcher, trainer, generators and shared memory are those of every run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalerl_mini.runtime import weight_channel
from scalerl_mini.runtime.supervisor import Supervisor
from scalerl_mini.training import processes, watch
from scalerl_mini.training.learner import Learner
from tests.fakes import LONGEST, FakeEngine
from tests.forked import become_ancestor, fork_launcher

DECODE_S, CHECKSUM_S, UPDATE_S, FLUSH_S, START_S = 0.001, 0.004, 0.008, 0.002, 0.05
PIDS = "PIDS"  # environment variable: the file in which every process of a run is written down


def prepare() -> None:
    """Turn this process into the ancestor of soaked runs."""
    become_ancestor()
    watch.FIRST_FIT = 10**6
    processes.build_engine = _engine  # type: ignore[assignment]
    processes.check_engine = lambda *_: None  # type: ignore[assignment] # it samples what no policy would
    weight_channel.checksum = _slow(weight_channel.checksum, CHECKSUM_S)
    os.fsync = _slow(os.fsync, FLUSH_S)  # type: ignore[assignment]
    Learner.update = _slow(Learner.update, UPDATE_S)  # type: ignore[method-assign]
    processes.Side.build = _slow(processes.Side.build, START_S)  # type: ignore[method-assign]
    Supervisor._start_role = _noted(Supervisor._start_role)  # type: ignore[method-assign]


def launch(arguments: list[str], console: Path, pids: Path) -> int:
    """Fork a launcher that runs `scalerl-mini` with these arguments; returns its process id."""
    os.environ[PIDS] = str(pids)
    return fork_launcher(arguments, console)


def _engine(config: Any, policy: Any, *_: Any) -> FakeEngine:
    engine = FakeEngine(policy, config.slots, LONGEST)
    engine.before_step = lambda: time.sleep(DECODE_S)
    return engine


def _slow(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(seconds)
        result = function(*args, **kwargs)
        time.sleep(seconds)
        return result

    return slow


def _noted(start_role: Callable[..., None]) -> Callable[..., None]:
    def noted(supervisor: Supervisor, name: str) -> None:
        start_role(supervisor, name)
        with Path(os.environ[PIDS]).open("a") as file:
            file.write(f"{name} {supervisor.pid(name)}\n")

    return noted
