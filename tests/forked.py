"""Launchers that start in milliseconds: an ancestor that has loaded torch and the rest forks them, and they their roles.

    with Ancestor() as ancestor:
        launcher = ancestor.launch(["train", "--out", str(folder)], console=folder.with_suffix(".console"))
        launcher.wait(60)

Only the start of a process differs from what a user sees; the tests of the supervisor and test_asynchronous_run start as a
user does. An ancestor is a process of its own, which ends with whoever made it and takes its launchers
with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.patience import patience

ROOT = Path(__file__).parents[1]
FAULT = 70  # exit code of a launcher that let an exception through


def become_ancestor() -> None:
    """Load what the processes of a run import; from now on this process and its descendants fork their roles, and rows
    of steps.jsonl say also which prompts were trained and a digest of their tokens."""
    import scalerl_mini.scaling  # noqa: F401
    from scalerl_mini.training import trainer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: context("fork" if method == "spawn" else method)  # type: ignore
    trainer.step_row = _traced(trainer.step_row)


def _traced(step_row: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def traced(batch: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        row = step_row(batch, *args, **kwargs)
        digest = hashlib.sha256(batch.tokens.tobytes()).hexdigest()[:16]
        return row | {"prompt_indices": [int(index) for index in batch.prompt_index], "digest": digest}

    return traced


def fork_launcher(arguments: list[str], console: Path) -> int:
    """Fork a launcher that runs `scalerl-mini` with these arguments in a session of its own; returns its process id."""
    ancestor = os.getpid()
    if pid := os.fork():
        return pid
    code = FAULT
    try:
        _become_launcher(ancestor, console)
        sys.argv = ["scalerl-mini", *arguments]
        from scalerl_mini import cli

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


def _become_launcher(ancestor: int, console: Path) -> None:
    from scalerl_mini.runtime.child import die_with_parent

    die_with_parent(ancestor)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, console, os.O_WRONLY | os.O_CREAT | os.O_APPEND)):
        descriptor = os.open(path, flags, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.dup2(1, 2)


class Ancestor:
    """The ancestor from the outside. prefix: words before its command line, such as those of `unshare`."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.forked"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._answer()

    def __enter__(self) -> Ancestor:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def launch(self, arguments: list[str], console: Path) -> Launcher:
        """Start `scalerl-mini` with these arguments; what it prints goes to `console`."""
        return Launcher(self, self.ask(arguments=arguments, console=str(console)), console)

    def ask(self, **question: Any) -> Any:
        """One line to the ancestor, one line back."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the ancestor ended with {self.process.wait()}"
        return json.loads(line)


class Launcher:
    """A forked launcher, as much like a `subprocess.Popen` as the tests need."""

    def __init__(self, ancestor: Ancestor, pid: int, console: Path) -> None:
        self.ancestor, self.pid, self.console = ancestor, pid, console
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = self.ancestor.ask(pid=self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float) -> int:
        """The exit code; AssertionError when the launcher is still there after `seconds` on an idle machine."""
        start = time.monotonic()
        while (code := self.poll()) is None:
            assert time.monotonic() < start + patience(seconds), f"still running after {seconds} s: {self.text}"
            time.sleep(0.01)
        return code

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.console.read_text() if self.console.exists() else ""


def serve() -> None:
    """Be an ancestor: a line {"arguments", "console"} starts a launcher, {"pid"} asks for its exit code, {"run"} has a
    command run where it lives."""
    become_ancestor()
    print(json.dumps("ready"), flush=True)
    for line in iter(sys.stdin.readline, ""):
        question = json.loads(line)
        if "pid" in question:
            pid, status = os.waitpid(question["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif "run" in question:
            answer = subprocess.run(question["run"], stdin=subprocess.DEVNULL, stdout=2, check=False).returncode
        else:
            answer = fork_launcher(question["arguments"], Path(question["console"]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
