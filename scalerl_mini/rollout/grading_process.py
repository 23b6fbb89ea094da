"""A worker that runs a task's grading code, seen from the process that owns it: started, asked, killed, replaced.

It speaks JSON, a line a message, over a socket pair: what a task's code says is text, never a pickle and never evaluated.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import tomli_w

from scalerl_mini.config_groups import TaskConfig
from scalerl_mini.errors import UserError
from scalerl_mini.tasks.grade import Grade, Verdict, failed

START_S = 120.0  # to build the task: it may load a data set
LONGEST_REPLY = 65536


class GraderFailed(UserError):
    """The task could be built in this process but not in a worker: its owner must mend it, a restart would not."""


class WorkerDied(Exception):
    """The worker is gone, or says what no worker says."""


class GradingProcess:
    """One worker at a time; a thread that calls `grade` must live as long as it, for the kernel ties the two together."""

    def __init__(self, config: TaskConfig) -> None:
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None

    def grade(self, part: str, prompt: int, completion: str) -> Grade:
        """The grade, after `task.grade_timeout_s` at the latest (plus the start of a worker where none is alive).

        Raises GraderFailed when a worker cannot be started.
        """
        if self.process is None or self.process.poll() is not None:
            self._start()
        try:
            self._send([part, prompt, completion])
            answer = json.loads(self._line(self.config.grade_timeout_s))
            if answer["again"]:
                self.kill()
            return failed(answer["error"]) if answer["error"] else Grade(float(answer["reward"]))
        except TimeoutError:
            self.kill()
            limit = self.config.grade_timeout_s
            return Grade(
                0.0, Verdict.TIMEOUT, f"no grade within task.grade_timeout_s = {limit:g}; the worker was killed"
            )
        except (WorkerDied, OSError, ValueError, TypeError, KeyError) as error:
            self.kill()
            return failed(f"the worker died ({error}): grading code ended its process or was killed")

    def kill(self) -> None:
        """End the worker and whatever it has started."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
            self.channel.close()
            self.process = None

    def _start(self) -> None:
        self.kill()
        self.channel, theirs = socket.socketpair()
        self.received = b""
        arguments = ["-P", "-m", "scalerl_mini.rollout.grading_worker", str(theirs.fileno()), str(os.getpid())]
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        try:
            options = tomli_w.dumps({"options": self.config.options})  # TOML, for it may hold dates
            self._send([self.config.name, options, self.config.grade_memory_mib])
            problem = json.loads(self._line(START_S))
        except (TimeoutError, WorkerDied, OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        if problem:
            self.kill()
            raise GraderFailed(f"task {self.config.name} cannot be graded in a worker process: {problem}")

    def _send(self, message: list[object]) -> None:
        self.channel.settimeout(self.config.grade_timeout_s)
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def _line(self, seconds: float) -> bytes:
        """The next line; TimeoutError after `seconds`, WorkerDied at the end of the stream."""
        end = time.monotonic() + seconds
        while b"\n" not in self.received:
            self.channel.settimeout(max(end - time.monotonic(), 1e-3))
            piece = self.channel.recv(LONGEST_REPLY)
            self.received += piece
            if not piece or len(self.received) > LONGEST_REPLY:
                raise WorkerDied(f"exit code {self._exitcode()}" if not piece else "endless reply")
        line, _, self.received = self.received.partition(b"\n")
        return line

    def _exitcode(self) -> int | None:
        try:
            return self.process.wait(1.0) if self.process else None
        except subprocess.TimeoutExpired:
            return None
