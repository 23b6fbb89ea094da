"""A run whose processes start in milliseconds and dwell where it hurts, for a soak that kills them by the hundred.

`prepare` changes this process and so every process forked from it: roles are forked instead of spawned (torch is loaded
once), the engine is the fake one, and sleeps lie in the middle of a publish, a load, a step, a flush to the disk and a
start, so that a signal sent at random moments finds each of them. Rows of steps.jsonl say which prompts were trained and
a digest of their tokens. Supervisor, launcher, trainer, generators and shared memory are those of every run.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import scalerl_mini.scaling  # noqa: F401 - loaded once, before the forks
from scalerl_mini import cli
from scalerl_mini.runtime import weight_channel
from scalerl_mini.runtime.supervisor import Supervisor
from scalerl_mini.training import processes, watch
from scalerl_mini.training import trainer as trainer_module
from scalerl_mini.training.learner import Learner
from tests.fakes import FakeEngine

LONGEST = 9
DECODE_S, CHECKSUM_S, UPDATE_S, FLUSH_S, START_S = 0.001, 0.004, 0.008, 0.002, 0.05
PIDS = "PIDS"  # environment variable: the file in which every process of a run is written down


def prepare() -> None:
    """Turn this process into the ancestor of soaked runs."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    spawn = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: spawn("fork" if method == "spawn" else method)  # type: ignore
    watch.FIRST_FIT = 10**6
    processes.build_engine = _engine  # type: ignore[assignment]
    processes.check_engine = lambda *_: None  # type: ignore[assignment] # it samples what no policy would
    trainer_module.step_row = _traced(trainer_module.step_row)
    weight_channel.checksum = _slow(weight_channel.checksum, CHECKSUM_S)
    os.fsync = _slow(os.fsync, FLUSH_S)  # type: ignore[assignment]
    Learner.update = _slow(Learner.update, UPDATE_S)  # type: ignore[method-assign]
    processes.Side.build = _slow(processes.Side.build, START_S)  # type: ignore[method-assign]
    Supervisor._start_role = _noted(Supervisor._start_role)  # type: ignore[method-assign]


def launch(arguments: list[str], console: Path, pids: Path) -> int:
    """Fork a launcher that runs `scalerl-mini` with these arguments; returns its process id."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        os.setsid()
        descriptor = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ[PIDS] = str(pids)
        sys.argv = ["scalerl-mini", *arguments]
        cli.main()
        code = 0
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(ValueError, OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


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


def _traced(step_row: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def traced(batch: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        row = step_row(batch, *args, **kwargs)
        digest = hashlib.sha256(batch.tokens.tobytes()).hexdigest()[:16]
        return row | {"prompt_indices": [int(index) for index in batch.prompt_index], "digest": digest}

    return traced


def _noted(start_role: Callable[..., None]) -> Callable[..., None]:
    def noted(supervisor: Supervisor, name: str) -> None:
        start_role(supervisor, name)
        with Path(os.environ[PIDS]).open("a") as file:
            file.write(f"{name} {supervisor.pid(name)}\n")

    return noted
