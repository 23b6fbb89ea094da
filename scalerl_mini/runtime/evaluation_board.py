"""The evaluation board: one evaluation at a time, its held-out prompts, who took which, and the results.

    prompt:  nobody's --take--> taken by an owner --sampled and graded--> done
                 ^----give_back (when the owner died)----'

Prompts are handed out under the segment's lock: whoever is faster takes more. A prompt is done when its last sample is
graded; the samples of a prompt that was given back are drawn again, from the same seeds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scalerl_mini.runtime.header import attach_with_header, create_with_header
from scalerl_mini.runtime.segment import Segment

NOBODY = -1
_HEADER = np.dtype([("request", "i8"), ("version", "i8")])


def result_dtype(samples: int) -> np.dtype:
    """Layout of a prompt's row: who has it, whether it is done, and [samples] values a completion."""
    state = [("owner", "i4"), ("done", "?")]
    values = [("reward", "f4", samples), ("length", "i4", samples), ("logprob_sum", "f8", samples)]
    flags = [("sampled", "i4", samples), ("truncated", "?", samples), ("interrupted", "?", samples)]
    flags += [("grading", "i1", samples)]
    return np.dtype([*state, *values, *flags], align=True)


class EvaluationBoard:
    """Shared memory: the request, and a row of `results` for each held-out prompt."""

    def __init__(self, segment: Segment, data: np.ndarray, prompts: int, samples: int) -> None:
        self.segment, self.prompts, self.samples = segment, prompts, samples
        dtype = result_dtype(samples)
        self.header = data[: _HEADER.itemsize].view(_HEADER)[0]
        self.results = data[64 : 64 + prompts * dtype.itemsize].view(dtype)

    @classmethod
    def create(cls, name: str, prompts: int, samples: int, fallback_dir: Path | None = None) -> EvaluationBoard:
        """New board, no evaluation asked for; UserError when there is no room for it."""
        size = 64 + prompts * result_dtype(samples).itemsize
        fields = {"prompts": prompts, "samples": samples}
        return cls(*create_with_header(name, "evaluation-board", fields, size, fallback_dir), prompts, samples)

    @classmethod
    def attach(cls, path_or_name: Path | str) -> EvaluationBoard:
        """Map an existing board."""
        segment, data, fields = attach_with_header(path_or_name, "evaluation-board")
        return cls(segment, data, fields["prompts"], fields["samples"])

    @property
    def request(self) -> int:
        """Grows with each evaluation, and when prompts of one are given back: look for prompts to take; 0 before."""
        return int(self.header["request"])

    @property
    def version(self) -> int:
        """Policy version under evaluation."""
        return int(self.header["version"])

    @property
    def done(self) -> int:
        """Prompts whose samples are all graded."""
        return int(self.results["done"].sum())

    def open(self, version: int) -> None:
        """Trainer: ask for an evaluation of `version`, which must be the newest published one."""
        with self.segment.lock():
            self.results["done"] = False
            self.results["owner"] = NOBODY
            self.header["version"] = version
            self.header["request"] += 1

    def take(self, count: int, version: int, owner: int) -> list[int]:
        """The next `count` prompts (or what is left) for an owner that holds `version`; empty when all are handed out,
        or when another version is evaluated by now: a late caller must not mix its version in."""
        with self.segment.lock():
            if version != self.version:
                return []
            taken = np.flatnonzero(self.results["owner"] == NOBODY)[:count]
            self.results["owner"][taken] = owner
        return taken.tolist()

    def give_back(self, owner: int, deadline_s: float | None = None) -> list[int]:
        """Hand out anew what a dead owner had taken and not finished, and have everybody look; returns those prompts.

        Only for a process that is gone, and with a deadline, as with `RolloutBuffer.reissue`.
        """
        with self.segment.lock(deadline_s):
            held = np.flatnonzero((self.results["owner"] == owner) & ~self.results["done"])
            self.results["owner"][held] = NOBODY
            self.header["request"] += len(held) > 0
        return held.tolist()

    def close(self) -> None:
        """Let go of the mapping in this process."""
        self.header = np.zeros((), _HEADER)[()]
        self.results = np.zeros(0, result_dtype(self.samples))
        self.segment.close()
