"""What the generator asks of an engine: token ids in, token ids out, one decode step at a time.

A request is one completion. The G completions of a group share their prompt, and an engine may share its computation.
Weights may be loaded between any two steps while sequences are half finished; the key-value cache is kept, so the
tokens before the update keep their old keys and values (PipelineRL, paper section 3). An engine follows its policy:
weights and `version` of the policy at a step are those that sample the step's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np


@dataclass(frozen=True)
class Request:
    """One completion to sample. prompt: token ids. seed: 64 bits. key: (group or prompt, sample), handed back in
    `Finished`.

    max_new_tokens: hard limit. thinking_budget: tokens after which the interruption is forced, or None for never.
    """

    prompt: tuple[int, ...]
    seed: int
    key: tuple[int, int]
    max_new_tokens: int
    thinking_budget: int | None = None


@dataclass(frozen=True)
class Finished:
    """A finished completion of T tokens, its end token included.

    tokens int32 [T]; logprobs float32 [T]: behaviour log-probability, temperature included; versions int32 [T]: policy
    version that produced each token; mask bool [T]: False for forced tokens. finish: "eos", or "length" when cut.
    """

    key: tuple[int, int]
    tokens: np.ndarray
    logprobs: np.ndarray
    versions: np.ndarray
    mask: np.ndarray
    finish: Literal["eos", "length"]
    interrupted: bool


class Engine(Protocol):
    """A continuous-batching sampler with a fixed number of slots."""

    @property
    def free(self) -> int:
        """Requests that can be submitted and start at the next step."""

    @property
    def running(self) -> int:
        """Requests submitted and not finished."""

    def submit(self, request: Request) -> None:
        """Queue one completion; it starts as soon as a slot is free."""

    def step(self) -> list[Finished]:
        """One token for every running completion; returns those that ended with it."""

    def abort(self, key: tuple[int, int]) -> None:
        """Forget a completion, queued or running."""

    def beside(self, completion_tokens: int) -> Engine:
        """Another engine over the same weights, with as many slots for completions of up to `completion_tokens`. Only one
        of the two may be stepped at a time: what the other has begun rests meanwhile."""
