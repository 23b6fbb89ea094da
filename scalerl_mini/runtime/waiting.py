"""Waiting for another process: with a deadline, a heartbeat, and a message that says for what and who is late.

Polling, not a condition variable: a primitive that a killed process can leave locked would turn one death into a hang.
A poll costs microseconds and comes at most every 2 ms, against decode and optimiser steps of tens of milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from scalerl_mini.runtime.control import Control, Stage

FIRST_SLEEP_S = 0.0002
LONGEST_SLEEP_S = 0.002


class Stopped(Exception):
    """The run is ending; `reason` is "interrupt", "failure" or "finished". Let it pass, it is an orderly end."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the run is stopping ({reason})")
        self.reason = reason


class WaitTimeout(RuntimeError):
    """A wait ran past its deadline; the message says who waited for what, and who is late."""


def wait_until(
    predicate: Callable[[], bool], what: str, *, control: Control, role: str, deadline_s: float, who: Sequence[str]
) -> float:
    """Wait until `predicate()` holds; returns the seconds waited.

    Args:
        what: completes "trainer waited 600 s for ...".
        role: who waits; shown as WAITING while it does, then as before.
        deadline_s: counted anew from the start of a process that replaces one of `who`.
        who: the roles that could make the predicate true, named with their last sign of life when it is late.

    Raises Stopped as soon as the stop flag is set, also when the predicate holds; WaitTimeout at the deadline.
    """
    start = time.monotonic()
    stage = control.stage(role)
    sleep_s = FIRST_SLEEP_S
    while True:
        if control.stopping:
            raise Stopped(str(control.stop_reason))
        if predicate():
            break
        control.beat(role, Stage.WAITING)
        if time.monotonic() - max([start, *map(control.started, who)]) > deadline_s:
            late = "; ".join(control.last_seen(other) for other in who)
            raise WaitTimeout(f"{role} waited {deadline_s:g} s for {what}; late: {late or 'nobody named'}")
        time.sleep(sleep_s)
        sleep_s = min(2 * sleep_s, LONGEST_SLEEP_S)
    control.beat(role, stage)
    return time.monotonic() - start
