"""Stand-ins for the slow parts of a run: an engine that samples nothing, a task of a few prompts, a clock.

`FakeEngine` implements the Engine protocol. What it "samples" is a function of the request's seed alone; its
log-probabilities are those of a model whose head is all zeros (`uniform_model`), so the trainer's self-check holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Finished, Request
from scalerl_mini.tasks import Prompt
from tests.policy.tiny import Tiny, tiny_policy

LONGEST = 9  # tokens of a fake completion
FAKE_RUN = (  # settings of a run with the fake task and engine
    "task.name=tests.fakes:FakeTask",
    "rollout.slots=8",
    "rollout.group_size=2",
    f"rollout.max_new_tokens={LONGEST}",
    "rollout.interruption.enabled=false",
    "objective.no_positive_resampling=false",
    "pipeline.prompts_per_step=3",
    "pipeline.k=2",
)


def uniform_model(folder: Path) -> Path:
    """A tiny Qwen3 folder whose next-token distribution is uniform: its head is zero."""
    policy = tiny_policy(Tiny("qwen3", layers=1, hidden=16))
    torch.nn.init.zeros_(policy.head_weight)
    policy.save(folder)
    return folder


class FakeTask:
    """Prompts `0=`, `1=`, ...; `rule` "parity" rewards completions that begin with an even digit; "always", "never" and
    "half" give all the same reward."""

    name = "fake"
    trusted = True

    def __init__(self, prompts: int = 12, held_out: int = 5, rule: str = "parity") -> None:
        self.rule = rule
        self.train = [Prompt(f"<bos>{index}=", "", "train") for index in range(prompts)]
        self.held_out = [Prompt(f"<bos>9*{index}=", "", f"level {index % 2}") for index in range(held_out)]

    def grade(self, prompt: Prompt, completion: str) -> float:
        flat = {"always": 1.0, "never": 0.0, "half": 0.5}
        return flat[self.rule] if self.rule in flat else float(completion[0] in "02468")


class FakeEngine:
    """One token a step and row: digits drawn from the request's seed, then the end token.

    `sampled` keeps (key, policy version) of every token. `before_step` is called before a step that has rows; `spoil` may
    change a finished completion before it is handed out.
    """

    def __init__(self, policy: Policy, slots: int, longest: int) -> None:
        self.policy, self.slots, self.longest = policy, slots, longest
        self.rows: dict[tuple[int, int], tuple[Request, list[int], list[int]]] = {}
        self.sampled: list[tuple[tuple[int, int], int]] = []
        self.before_step: Callable[[], None] = lambda: None
        self.spoil: Callable[[Finished], None] = lambda finished: None
        self.digits = np.array(policy.encode("0123456789"))
        (self.eos,) = policy.eos_ids
        self.logprob = -math.log(policy.head_weight.shape[0])

    @property
    def free(self) -> int:
        return self.slots - len(self.rows)

    @property
    def running(self) -> int:
        return len(self.rows)

    def submit(self, request: Request) -> None:
        assert self.free > 0, "more requests than slots"
        assert request.key not in self.rows, "the same completion twice"
        self.rows[request.key] = (request, self._tokens(request), [])

    def step(self) -> list[Finished]:
        finished: list[Finished] = []
        if not self.rows:
            return finished
        self.before_step()
        for key, (_, tokens, versions) in list(self.rows.items()):
            versions.append(self.policy.version)
            self.sampled.append((key, self.policy.version))
            if len(versions) == len(tokens):
                del self.rows[key]
                finished.append(self._finished(key, tokens, versions))
        return finished

    def abort(self, key: tuple[int, int]) -> None:
        self.rows.pop(key, None)

    def beside(self, completion_tokens: int) -> FakeEngine:
        other = FakeEngine(self.policy, self.slots, self.longest)
        other.before_step = self.before_step
        return other

    def _tokens(self, request: Request) -> list[int]:
        rng = np.random.default_rng(request.seed)
        digits = rng.choice(self.digits, size=rng.integers(1, min(self.longest, request.max_new_tokens)))
        return [*digits.tolist(), self.eos]

    def _finished(self, key: tuple[int, int], tokens: list[int], versions: list[int]) -> Finished:
        finished = Finished(
            key=key,
            tokens=np.array(tokens, np.int32),
            logprobs=np.full(len(tokens), self.logprob, np.float32),
            versions=np.array(versions, np.int32),
            mask=np.ones(len(tokens), bool),
            finish="eos",
            interrupted=False,
        )
        self.spoil(finished)
        return finished


class FakeClock:
    """A `time` module that stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now
