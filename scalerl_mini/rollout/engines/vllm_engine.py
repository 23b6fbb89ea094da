"""vLLM behind the `Engine` protocol: which completions run, what each has sampled under which version, interruption.

    queue ──► core.start(prompt + tokens so far) ──► core.step() ──► row.tokens ──► finished
      ▲                                                    │
      └── phrase appended at the thinking budget ──────────┘        (also: rows parked while another engine steps)

A completion is interrupted by stopping it, appending the phrase, and starting it again with what it has: token ids in,
token ids out, so the forced span is exact and no special sampler is needed. The blocks of its cache that are full are
found again by the salt of its first start; the salt holds the policy version, so a completion that starts after an update
never reads keys and values of an older version.

Differences from the torch engine: forced tokens carry log-probability 0 instead of the policy's own (they are masked);
each start seeds vLLM's generator from (seed of the completion, tokens so far), which makes a completion independent of
its neighbours but for rounding, and different from the torch engine's of the same seed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from scalerl_mini.policy.model import Policy
from scalerl_mini.rollout.engines.base import Finished, Request
from scalerl_mini.rollout.engines.vllm_core import Core, Sampled
from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.seeds import derive_seed

SEEDS = 2**63  # vLLM's are signed


@dataclass
class Row:
    """A completion that has begun, running or not. salt: of the version under which it began."""

    request: Request
    salt: str
    thinking: bool
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)

    def append(self, token: int, logprob: float, version: int, sampled: bool) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        self.mask.append(sampled)

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.request.max_new_tokens - len(self.tokens)


class VllmEngine:
    """`Engine` over a core, which engines of one process share: they take turns, and the others' rows are parked."""

    def __init__(
        self,
        core: Core,
        policy: Policy,
        slots: int,
        prompt_tokens: int,
        completion_tokens: int,
        interruption: Interruption | None = None,
    ) -> None:
        """slots: completions side by side. prompt_tokens, completion_tokens: longest of each that can be asked for."""
        self.core, self.policy, self.interruption = core, policy, interruption
        self.slots, self.prompt_tokens, self.completion_tokens = slots, prompt_tokens, completion_tokens
        self.queue: deque[Request | Row] = deque()
        self.rows: dict[str, Row] = {}

    def beside(self, completion_tokens: int) -> VllmEngine:
        return VllmEngine(self.core, self.policy, self.slots, self.prompt_tokens, completion_tokens, self.interruption)

    @property
    def free(self) -> int:
        return self.slots - self.running

    @property
    def running(self) -> int:
        return len(self.rows) + len(self.queue)

    def submit(self, request: Request) -> None:
        capacity = self.prompt_tokens + self.completion_tokens
        if not request.prompt:
            raise ValueError("request without a prompt: the first token would have nothing to be sampled from")
        if request.max_new_tokens > self.completion_tokens or len(request.prompt) + request.max_new_tokens > capacity:
            raise ValueError(
                f"request of {len(request.prompt)} + {request.max_new_tokens} tokens does not fit a slot of {capacity}"
            )
        self.queue.append(request)

    def abort(self, key: tuple[int, int]) -> None:
        self.queue = deque(item for item in self.queue if _request(item).key != key)
        names = [name for name, row in self.rows.items() if row.request.key == key]
        self._stop(names)

    def step(self) -> list[Finished]:
        if not self.running:
            return []
        if self.core.user is not self:
            if self.core.user is not None:
                self.core.user.park()
            self.core.user = self
        if self.core.version != self.policy.version:
            self.core.load(self.policy)
        self._admit()
        return [finished for sampled in self.core.step() if (finished := self._advance(sampled)) is not None]

    def park(self) -> None:
        """Stop what runs; it goes on from where it is at the next step of this engine."""
        self.queue.extendleft(reversed(self._stop(list(self.rows))))

    def _admit(self) -> None:
        while self.queue and len(self.rows) < self.slots:
            item = self.queue.popleft()
            row = item if isinstance(item, Row) else self._row(item)
            request = row.request
            seed = derive_seed(request.seed, len(row.tokens)) % SEEDS
            self.rows[self.core.start((*request.prompt, *row.tokens), row.left, seed, row.salt)] = row

    def _row(self, request: Request) -> Row:
        thinking = self.interruption is not None and request.thinking_budget is not None
        return Row(request, f"version {self.policy.version}", thinking)

    def _advance(self, sampled: Sampled) -> Finished | None:
        row = self.rows[sampled.name]
        row.append(sampled.token, sampled.logprob, self.policy.version, True)
        if sampled.end:
            del self.rows[sampled.name]
            return _finished(row, sampled.end)
        if self.interruption is None or not row.thinking:
            return None
        end = self.interruption.think_end
        if tuple(row.tokens[-len(end) :]) == end:
            row.thinking = False
        elif len(row.tokens) == row.request.thinking_budget:
            return self._interrupt(sampled.name, self.interruption.phrase)
        return None

    def _interrupt(self, name: str, phrase: tuple[int, ...]) -> Finished | None:
        """Append the phrase, or what of it the limit leaves room for."""
        (row,) = self._stop([name])
        row.thinking = False
        for token in phrase[: row.left]:
            row.append(token, 0.0, self.policy.version, False)
        if not row.left:
            return _finished(row, "length")
        self.queue.appendleft(row)
        return None

    def _stop(self, names: list[str]) -> list[Row]:
        self.core.stop(names)
        return [self.rows.pop(name) for name in names]


def _request(item: Request | Row) -> Request:
    return item.request if isinstance(item, Row) else item


def _finished(row: Row, end: Literal["eos", "length"]) -> Finished:
    mask = np.array(row.mask, bool)
    return Finished(
        key=row.request.key,
        tokens=np.array(row.tokens, np.int32),
        logprobs=np.array(row.logprobs, np.float32),
        versions=np.array(row.versions, np.int32),
        mask=mask,
        finish=end,
        interrupted=not mask.all(),
    )
