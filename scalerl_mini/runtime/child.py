"""What happens in a child process before and after its role's function.

The child may not outlive the launcher, whatever ends the launcher: Linux sends it SIGKILL when its parent dies
(PR_SET_PDEATHSIG). Everything it prints, C libraries included, goes to its own log; what it dies of is in there too.
The role's function is named by text and imported here, after the log is open, so an import that fails is logged as
well and the launcher need not import torch in order to start somebody who does.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError, WouldComeAgain
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.waiting import Stopped

STACK_SIGNAL = signal.SIGUSR1
INTERRUPTS = {signal.SIGINT, signal.SIGTERM}
NO_RESTART = 3  # exit code
_PR_SET_PDEATHSIG = 1


def run_child(name: str, entry: str, args: tuple[Any, ...], control_path: Path, log_path: Path, launcher: int) -> None:
    """Body of the process of role `name`: call `entry` ("module:function") with `args`; exit 0, 1 on an exception, or
    NO_RESTART on one that would come again.

    `Stopped` counts as an orderly end. The launcher's process id is `launcher`.
    """
    die_with_parent(launcher)
    ignore_interrupts()
    redirect_output(log_path)
    try:
        control = Control.attach(control_path)
        module, function = entry.split(":")
        getattr(importlib.import_module(module), function)(*args)
    except Stopped as stopped:
        print(f"{name}: {stopped}", flush=True)
    except UserError as error:
        control.leave_words(name, str(error))
        _say(f"error: {error}")
        sys.exit(NO_RESTART)
    except Exception as error:
        traceback.print_exc()
        sys.exit(NO_RESTART if isinstance(error, WouldComeAgain | FloatingPointError) else 1)
    control.beat(name, Stage.DONE)


def _say(text: str) -> None:
    """Print into the log; where the disk takes no more, let nothing that is still to be printed change the exit code."""
    try:
        print(text, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent does; call it first thing in every process that is started.

    A role that starts helpers of its own (a grader, an engine's workers) passes its own pid and calls it in them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # The parent died before the request was in force.
        os._exit(1)


def ignore_interrupts() -> None:
    """Leave Ctrl-C and SIGTERM to the launcher: terminals, `timeout` and batch systems send them to every process. They
    are unblocked, which the launcher had done to them, for the sake of programs started from here."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)


def redirect_output(log_path: Path) -> None:
    """Append stdout and stderr, at file-descriptor level, to `log_path`; crashes and STACK_SIGNAL print the stacks."""
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, all_threads=True)
