"""Continuous batching on any Llama- or Qwen-type `transformers` model, on CPU or one GPU.

    queue ──► slots ──► one ragged forward a step ──► sample ──► record ──► finished
                          (running rows: 1 token each; rows that start: their whole prompt, once a group)

A finished row is replaced at the next step. Keys and values live in a preallocated cache indexed by slot; weights can be
swapped between two steps because the policy object is shared and the cache is simply kept. Book-keeping is numpy on the
CPU, whatever the device of the model. Only temperature sampling exists: with top-p or top-k the generator would sample
from another distribution than the trainer scores.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

from scalerl_mini.policy.model import Policy
from scalerl_mini.policy.ragged_attention import DecodeStep, KeyValueCache, PackedSequences
from scalerl_mini.rollout.engines.base import Finished, Request
from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.seeds import uniform

NEVER = np.iinfo(np.int32).max
BELOW_ONE = np.float32(1 - 2.0**-24)  # a draw that fp32 rounds up to 1 would pick the last token, however impossible


class TorchEngine:
    """`Engine` over a `Policy`; several engines may share one policy (training and evaluation rollouts do)."""

    def __init__(
        self,
        policy: Policy,
        slots: int,
        prompt_tokens: int,
        completion_tokens: int,
        temperature: float = 1.0,
        interruption: Interruption | None = None,
    ) -> None:
        """slots: rows decoded side by side. prompt_tokens, completion_tokens: longest of each that can be asked for."""
        self.policy, self.temperature, self.interruption = policy, temperature, interruption
        self.slots, self.prompt_tokens, self.completion_tokens = slots, prompt_tokens, completion_tokens
        capacity = prompt_tokens + completion_tokens
        self.cache = KeyValueCache(policy.config, slots, capacity, policy.body.dtype, policy.device)
        self.eos = np.array(sorted(policy.eos_ids), np.int64)
        self.queue: deque[Request] = deque()
        self.request: list[Request | None] = [None] * slots
        self.active = np.zeros(slots, bool)
        self.length = np.zeros(slots, np.int64)  # tokens of the completion so far
        self.prompt_length = np.zeros(slots, np.int64)
        self.limit = np.zeros(slots, np.int64)
        self.force_from = np.full(slots, NEVER, np.int64)  # completion index of the first forced token
        self.thinking = np.zeros(slots, bool)
        self.seeds = np.zeros(slots, np.uint64)
        self.tokens = np.zeros((slots, completion_tokens), np.int32)
        self.logprobs = np.zeros((slots, completion_tokens), np.float32)
        self.versions = np.zeros((slots, completion_tokens), np.int32)
        self.mask = np.zeros((slots, completion_tokens), bool)

    def beside(self, completion_tokens: int) -> TorchEngine:
        return TorchEngine(
            self.policy, self.slots, self.prompt_tokens, completion_tokens, self.temperature, self.interruption
        )

    @property
    def free(self) -> int:
        return self.slots - self.running

    @property
    def running(self) -> int:
        return int(self.active.sum()) + len(self.queue)

    def submit(self, request: Request) -> None:
        capacity = self.cache.keys.shape[3]
        if not request.prompt:
            raise ValueError("request without a prompt: the first token would have nothing to be sampled from")
        if request.max_new_tokens > self.completion_tokens or len(request.prompt) + request.max_new_tokens > capacity:
            raise ValueError(
                f"request of {len(request.prompt)} + {request.max_new_tokens} tokens does not fit a slot of {capacity}"
            )
        self.queue.append(request)

    def abort(self, key: tuple[int, int]) -> None:
        self.queue = deque(request for request in self.queue if request.key != key)
        for slot in np.flatnonzero(self.active):
            request = self.request[slot]
            if request is not None and request.key == key:
                self._release(int(slot))

    @torch.inference_mode()
    def step(self) -> list[Finished]:
        decoding = np.flatnonzero(self.active)
        starting = self._admit()
        if not len(decoding) and not starting:
            return []
        hidden = self._forward(decoding, starting)
        rows = np.concatenate([decoding, np.array(starting, np.int64)])
        tokens, logprobs = self._sample(hidden, rows)
        self._record(rows, tokens, logprobs)
        return [self._finish(int(slot)) for slot in rows[self._ended(rows)]]

    def _admit(self) -> list[int]:
        """Move requests from the queue into free slots; returns the slots that start now."""
        starting = []
        for slot in np.flatnonzero(~self.active):
            if not self.queue:
                break
            request = self.queue.popleft()
            self.request[slot] = request
            self.active[slot] = True
            self.length[slot] = 0
            self.prompt_length[slot] = len(request.prompt)
            self.limit[slot] = request.max_new_tokens
            self.seeds[slot] = request.seed
            self.force_from[slot] = NEVER
            self.thinking[slot] = self.interruption is not None and request.thinking_budget is not None
            starting.append(int(slot))
        return starting

    def _forward(self, decoding: np.ndarray, starting: list[int]) -> Tensor:
        """One ragged forward; returns the hidden states [R + S, D] from which each row's next token is sampled."""
        device = self.policy.device
        last = self.length[decoding] - 1
        ids = [torch.from_numpy(self.tokens[decoding, last]).long()]
        positions = [torch.from_numpy(self.prompt_length[decoding] + last)]
        unique: dict[tuple[int, ...], int] = {}
        sources = [unique.setdefault(self._prompt(slot), len(unique)) for slot in starting]
        prompts = None
        if unique:
            prompts = PackedSequences(torch.tensor([len(prompt) for prompt in unique], device=device))
            ids.append(torch.tensor([token for prompt in unique for token in prompt]))
            positions.append(prompts.positions.cpu())
        layout = DecodeStep(
            self.cache,
            torch.from_numpy(decoding).to(device),
            positions[0].to(device),
            prompts,
            torch.tensor(starting, dtype=torch.long, device=device),
            torch.tensor(sources, dtype=torch.long, device=device),
        )
        hidden = self.policy.hidden_states(torch.cat(ids).to(device), torch.cat(positions).to(device), layout)
        if prompts is None:
            return hidden
        count = len(decoding)
        return torch.cat([hidden[:count], hidden[count + prompts.last[layout.sources]]])

    def _prompt(self, slot: int) -> tuple[int, ...]:
        request = self.request[slot]
        assert request is not None
        return request.prompt

    def _sample(self, hidden: Tensor, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw one token a row by inverting the distribution function at the row's own uniform number."""
        log_p = self.policy.logits(hidden, self.temperature).log_softmax(-1)
        numbers = uniform(self.seeds[rows], self.length[rows]).astype(np.float32)
        draws = torch.from_numpy(np.minimum(numbers, BELOW_ONE)).to(hidden.device)
        cdf = log_p.exp().cumsum(-1)
        tokens = torch.searchsorted(cdf, draws[:, None] * cdf[:, -1:], right=True).clamp_(max=cdf.shape[1] - 1)
        if self.interruption is not None:
            forced = self._forced(rows)
            if forced.any():
                offset = self.length[rows[forced]] - self.force_from[rows[forced]]
                phrase = np.array(self.interruption.phrase, np.int64)
                tokens[torch.from_numpy(forced).to(hidden.device), 0] = torch.from_numpy(phrase[offset]).to(
                    hidden.device
                )
        return tokens[:, 0].cpu().numpy(), log_p.gather(1, tokens)[:, 0].cpu().numpy()

    def _forced(self, rows: np.ndarray) -> np.ndarray:
        """Which rows are inside the interruption phrase at their next token."""
        if self.interruption is None:
            return np.zeros(len(rows), bool)
        start = self.force_from[rows]
        return (self.length[rows] >= start) & (self.length[rows] < start + len(self.interruption.phrase))

    def _record(self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray) -> None:
        at = self.length[rows]
        self.tokens[rows, at] = tokens
        self.logprobs[rows, at] = logprobs
        self.versions[rows, at] = self.policy.version
        self.mask[rows, at] = ~self._forced(rows)
        self.length[rows] += 1
        if self.interruption is not None:
            self._update_thinking(rows, self.interruption)

    def _update_thinking(self, rows: np.ndarray, interruption: Interruption) -> None:
        """Note which rows ended their thinking with this token, and which have just used up their budget."""
        rows = rows[self.thinking[rows]]
        end = np.array(interruption.think_end)
        window = self.length[rows, None] - len(end) + np.arange(len(end))
        ended = (window[:, 0] >= 0) & (self.tokens[rows[:, None], window.clip(0)] == end).all(1)
        self.thinking[rows[ended]] = False
        for slot in rows[~ended]:
            request = self.request[slot]
            if request is not None and self.length[slot] == request.thinking_budget:
                self.force_from[slot] = self.length[slot]
                self.thinking[slot] = False

    def _ended(self, rows: np.ndarray) -> np.ndarray:
        last = self.length[rows] - 1
        sampled_eos = np.isin(self.tokens[rows, last], self.eos) & self.mask[rows, last]
        return sampled_eos | (self.length[rows] >= self.limit[rows])

    def _finish(self, slot: int) -> Finished:
        request, count = self.request[slot], int(self.length[slot])
        assert request is not None
        ended = self.tokens[slot, count - 1] in self.eos and self.mask[slot, count - 1]
        finished = Finished(
            key=request.key,
            tokens=self.tokens[slot, :count].copy(),
            logprobs=self.logprobs[slot, :count].copy(),
            versions=self.versions[slot, :count].copy(),
            mask=self.mask[slot, :count].copy(),
            finish="eos" if ended else "length",
            interrupted=not self.mask[slot, :count].all(),
        )
        self._release(slot)
        return finished

    def _release(self, slot: int) -> None:
        self.request[slot] = None
        self.active[slot] = False
