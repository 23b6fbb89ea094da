"""A task whose grading code does whatever the completion says: hang, eat memory, die, return rubbish."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from scalerl_mini.tasks import Prompt


class Hostile:
    """`right` and `wrong` are graded well; anything else misbehaves. `broken_in_worker`: cannot be built a second time."""

    name = "hostile"

    def __init__(self, prompts: int = 12, held_out: int = 5, broken_in_worker: bool = False, owner: int = 0) -> None:
        if broken_in_worker and os.getpid() != owner:
            raise FileNotFoundError("the data set is not here")
        self.train = [Prompt(f"<bos>{index}=", "right", "train") for index in range(prompts)]
        self.held_out = [Prompt(f"<bos>9*{index}=", "right", "level") for index in range(held_out)]

    def grade(self, prompt: Prompt, completion: str) -> Any:
        verb, _, rest = completion.partition(" ")
        act = getattr(self, f"do_{verb}", None)
        return act(rest) if act else float(completion == prompt.answer)

    def do_loop(self, file: str) -> None:
        """`file`, if given, is told the process id first."""
        if file:
            Path(file).write_text(str(os.getpid()))
        while True:
            pass

    def do_sleep(self, _: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1e6)

    def do_stop(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def do_memory(self, _: str) -> None:
        kept = []
        while True:
            kept.append(bytearray(8 * 1024**2))

    def do_recurse(self, rest: str) -> None:
        self.do_recurse(rest)

    def do_raise(self, rest: str) -> None:
        raise ValueError(rest)

    def do_exit(self, _: str) -> None:
        sys.exit(0)

    def do_die(self, _: str) -> None:
        os._exit(7)

    def do_segfault(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def do_print(self, _: str) -> float:
        print("x" * 10_000_000)
        return 1.0

    def do_int(self, rest: str) -> float:
        return float(int(rest) > 0)

    def do_return(self, rest: str) -> Any:
        values = {"nan": float("nan"), "none": None, "text": "1.0", "two": 2.0, "minus": -0.5, "inf": float("inf"),
                  "list": [1.0], "bool": True, "int": 1, "half": 0.5, "array": Unspeakable()}  # fmt: skip
        return values[rest]

    def do_length(self, rest: str) -> float:
        return float(len(rest) == 50_000)


class Moody(Hostile):
    """Rewards completions that begin with an even digit, fails at 9 and hangs at 8; `fault`: does that always."""

    def __init__(self, fault: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.fault = fault

    def grade(self, prompt: Prompt, completion: str) -> Any:
        verb = self.fault or {"9": "raise", "8": "sleep"}.get(completion[0])
        return super().grade(prompt, verb) if verb else float(completion[0] in "0246")


class Unspeakable:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Trusted(Hostile):
    """The same, graded in the process that samples."""

    trusted = True
