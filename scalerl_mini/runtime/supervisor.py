"""The supervisor: starts one process a role, notices when one dies or falls silent, and leaves nobody behind.

All processes are spawned, never forked (a fork copies threads and device contexts in the middle of whatever they do).
The launcher is the parent of all of them; it alone hears Ctrl-C and SIGTERM, asks the others to stop through the control
block, and kills those that do not. When a child dies without the launcher's wish, `poll` raises `ChildFailed`. The
launcher lets that pass, which ends the run, or it gives back what the dead one held and calls `restart`: everything a
role needs is in its `Role` and in shared memory.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from scalerl_mini.runtime.child import INTERRUPTS, NO_RESTART, STACK_SIGNAL, run_child
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.segment import lock_waiters

FAILURE_GRACE_S = 3.0
_STACK_DUMP_S = 0.2
_POLL_S = 0.02
_LOG_TAIL_BYTES = 65536

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Role:
    """A process to start: its name, its function (or "module:function", not yet imported), its picklable arguments."""

    name: str
    target: Callable[..., None] | str
    args: tuple[Any, ...] = ()

    @property
    def entry(self) -> str:
        """The function as "module:function"; ValueError when another process could not import it."""
        if isinstance(self.target, str):
            return self.target
        module, function = self.target.__module__, self.target.__qualname__
        if module == "__main__" or not function.isidentifier():
            raise ValueError(f"{self.name}: {module}:{function} cannot be imported by a spawned process")
        return f"{module}:{function}"


class ChildFailed(RuntimeError):
    """A role died or fell silent. `role`, `cause` (exit code, signal or silence), `log_path`, `log_tail`; `again`: a new
    process would fail in the same way, by the child's own word."""

    def __init__(
        self, role: str, cause: str, log_path: Path, log_start: int = 0, *, again: bool = False, words: str = ""
    ) -> None:
        """words: one clear line in the place of the cause, if the role left one."""
        self.role, self.cause, self.log_path, self.again = role, cause, log_path, again
        self.log_tail = last_words(log_path, log_start)
        more = f"\n{self.log_tail}" if self.log_tail and not words else ""
        super().__init__(f"{words or f'{role} {cause}'} (log: {log_path})" + more)


class Supervisor:
    """Use as a context manager: entering starts the roles, leaving stops and joins them, whatever happened inside.

    Start it from the main thread: the kernel ties the life of a child to the thread that started it. Two supervisors
    may run at once, also in one launcher.
    """

    def __init__(
        self,
        roles: list[Role],
        control: Control,
        log_dir: Path,
        heartbeat_timeout_s: float,
        *,
        start_timeout_s: float = 600.0,
        grace_s: float = 10.0,
    ) -> None:
        """
        Args:
            heartbeat_timeout_s: a role that is silent for longer is killed and counts as failed.
            start_timeout_s: the same while a role is STARTING (importing, loading a model).
            grace_s: how long the roles may take to end by themselves when the context is left (to save their work);
                after a failure FAILURE_GRACE_S at most.
        """
        self.log_dir = log_dir
        self.control = control
        self.heartbeat_timeout_s = heartbeat_timeout_s
        self.start_timeout_s = start_timeout_s
        self.grace_s = grace_s
        self._roles = {role.name: role for role in roles}
        self._children: dict[str, SpawnProcess] = {}
        self._log_starts: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._last_poll = self._awake_since = time.monotonic()

    def __enter__(self) -> Supervisor:
        try:
            self.start()
        except BaseException:
            self.stop(0.0, "failure")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reason = "finished" if kind is None else "interrupt" if issubclass(kind, KeyboardInterrupt) else "failure"
        self.stop(min(self.grace_s, FAILURE_GRACE_S) if reason == "failure" else self.grace_s, reason)

    def start(self) -> None:
        """Start every role."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        for name in self._roles:
            self._start_role(name)

    def poll(self) -> bool:
        """True when all roles have ended with 0, False while some run; call it more often than the heartbeat timeout.

        Raises ChildFailed when one ended otherwise or fell silent (that one is killed and joined first).
        """
        self._notice_own_sleep()
        self._start_due()
        exitcodes = {name: child.exitcode for name, child in self._children.items()}  # one look: no death in between
        for name, exitcode in exitcodes.items():
            if exitcode:
                raise self._failure(name, _cause(exitcode), again=exitcode == NO_RESTART)
        self._check_heartbeats()
        return None not in exitcodes.values() and not self._due

    def restart(self, name: str, delay_s: float = 0.0) -> None:
        """After ChildFailed: have `poll` start the role again in `delay_s`, or let it go when the run is ending."""
        self._children.pop(name).join()
        self.control.start(name)
        self._due[name] = time.monotonic() + delay_s

    def stop(self, grace_s: float, reason: str = "interrupt") -> None:
        """Ask all roles to end, wait `grace_s`, kill; returns when every child is gone and joined.

        A second Ctrl-C cuts the grace short but still leaves nobody behind.
        """
        self.control.request_stop(reason)
        try:
            if not self._wait_for_end(grace_s):
                log.warning("still running after %g s, killed: %s", grace_s, ", ".join(self._running()))
        finally:
            with interrupts_blocked():
                for child in self._children.values():
                    child.kill()
                    child.join()

    def log_path(self, name: str) -> Path:
        """Where the output of role `name` goes."""
        return self.log_dir / f"{name}.log"

    def pid(self, name: str) -> int:
        """Process id of role `name`."""
        return int(self._children[name].pid or 0)

    def _start_role(self, name: str) -> None:
        role, log_path = self._roles[name], self.log_path(name)
        self.control.start(name)
        self._log_starts[name] = log_path.stat().st_size if log_path.exists() else 0
        resource_tracker.ensure_running()  # Otherwise the first spawn starts it, which unblocks Ctrl-C again.
        arguments = (name, role.entry, role.args, self.control.path, log_path, os.getpid())
        child = multiprocessing.get_context("spawn").Process(target=run_child, args=arguments, name=name)
        with interrupts_blocked():
            child.start()
            self._children[name] = child

    def _start_due(self) -> None:
        """Start what is to be started again and whose time has come; nobody any more when the run is ending."""
        if self.control.stopping:
            self._due.clear()
        for name in [name for name, due in self._due.items() if due <= time.monotonic()]:
            del self._due[name]
            self._start_role(name)

    def _check_heartbeats(self) -> None:
        """Kill and report the role that is most overdue. Afterwards nobody is late before it has had time to speak again,
        since it may only have waited for the one that was killed."""
        if not (late := self._late()):
            return
        name = max(late, key=self._overdue_s)
        cause = f"was silent in stage {self.control.stage(name).name} ({self.control.last_seen(name)})"
        os.kill(self.pid(name), STACK_SIGNAL)
        time.sleep(_STACK_DUMP_S)
        self._children[name].kill()
        self._children[name].join()
        self._awake_since = time.monotonic()
        raise self._failure(name, cause)

    def _late(self) -> list[str]:
        """Roles that should have been seen by now. Who waits for a lock is not late: the holder is."""
        late = [name for name in self._running() if self._overdue_s(name) > 0]
        return [name for name in late if self.pid(name) not in lock_waiters()]

    def _overdue_s(self, name: str) -> float:
        """Seconds since the role should have been seen; negative while it is in time."""
        starting = self.control.stage(name) == Stage.STARTING
        last = max(self.control.last_beat(name), self._awake_since)
        return time.monotonic() - last - (self.start_timeout_s if starting else self.heartbeat_timeout_s)

    def _failure(self, name: str, cause: str, *, again: bool = False) -> ChildFailed:
        words = self.control.words(name)
        return ChildFailed(name, cause, self.log_path(name), self._log_starts[name], again=again, words=words)

    def _notice_own_sleep(self) -> None:
        """After Ctrl-Z and fg the whole family was asleep: nobody is late before it has had time to speak again."""
        now = time.monotonic()
        if now - self._last_poll > self.heartbeat_timeout_s:
            self._awake_since = now
        self._last_poll = now

    def _running(self) -> list[str]:
        return [name for name, child in self._children.items() if child.exitcode is None]

    def _wait_for_end(self, seconds: float) -> bool:
        """True when all children ended within `seconds`; one that falls silent meanwhile is killed, also for the sake of
        those who wait for its lock in order to save their work."""
        end = time.monotonic() + seconds
        while self._running() and time.monotonic() < end:
            self._notice_own_sleep()
            for name in self._late():
                self._children[name].kill()
                self._awake_since = time.monotonic()
            time.sleep(_POLL_S)
        return not self._running()


def last_words(log_path: Path, start: int = 0, lines: int = 20) -> str:
    """The last traceback in a log after byte `start`, or else its last lines; empty when there is no log."""
    if not log_path.exists():
        return ""
    with log_path.open("rb") as file:
        file.seek(max(start, log_path.stat().st_size - _LOG_TAIL_BYTES))
        text = file.read().decode(errors="replace").rstrip()
    found = text.rfind("Traceback (most recent call last)")
    return text[found:] if found >= 0 else "\n".join(text.splitlines()[-lines:])


def _cause(exitcode: int) -> str:
    if exitcode > 0:
        return f"exited with {exitcode}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exitcode).name}"
    return f"was killed by signal {-exitcode}"


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back, so that a child starts with them blocked and the launcher ends its tidying."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
