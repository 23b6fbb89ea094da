"""A core of `VllmEngine` without vLLM: every token by a forward pass over its whole sequence, no cache at all.

Like vLLM it has weights of its own, copied at `load`, and draws from the seed that it is given at `start`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import PackedSequences
from scalerl_mini.rollout.engines import VllmEngine
from scalerl_mini.rollout.engines.vllm_core import Sampled
from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.seeds import uniform


@dataclass
class Sequence:
    ids: list[int]
    left: int
    seed: int
    drawn: int = 0


class PlainCore:
    """`Core`; `started` keeps (ids, salt) of every start, `loads` the versions taken over."""

    def __init__(self, policy: Policy, temperature: float = 1.0) -> None:
        self.policy, self.temperature = copy.deepcopy(policy), temperature
        self.version: int | None = None
        self.user: VllmEngine | None = None
        self.sequences: dict[str, Sequence] = {}
        self.started: list[tuple[list[int], str]] = []
        self.loads: list[int] = []

    def load(self, policy: Policy) -> None:
        self.policy.model.load_state_dict(policy.model.state_dict())
        self.version = policy.version
        self.loads.append(policy.version)

    def start(self, ids: Iterable[int], most: int, seed: int, salt: str) -> str:
        self.started.append((list(ids), salt))
        name = str(len(self.started))
        self.sequences[name] = Sequence(list(self.started[-1][0]), most, seed)
        return name

    def stop(self, names: list[str]) -> None:
        for name in names:
            del self.sequences[name]

    def step(self) -> list[Sampled]:
        return [self._sample(name, sequence) for name, sequence in list(self.sequences.items())]

    @torch.no_grad()
    def _sample(self, name: str, sequence: Sequence) -> Sampled:
        ids = torch.tensor(sequence.ids)
        whole = PackedSequences(torch.tensor([len(ids)]))
        hidden = self.policy.hidden_states(ids, whole.positions, whole)[-1:]
        log_p = self.policy.logits(hidden, self.temperature).log_softmax(-1)[0]
        draw = uniform(np.array([sequence.seed], np.uint64), np.array([sequence.drawn]))[0]
        token = int(torch.searchsorted(log_p.exp().cumsum(0), draw, right=True).clamp(max=len(log_p) - 1))
        sequence.ids.append(token)
        sequence.drawn += 1
        sequence.left -= 1
        end: Literal["eos", "length"] | None = None if sequence.left else "length"
        if token in self.policy.eos_ids:
            end = "eos"
        if end:
            del self.sequences[name]
        return Sampled(name, token, float(log_p[token]), end)


def plain_engine(
    policy: Policy, slots: int, interruption: Interruption | None = None, temperature: float = 1.0
) -> VllmEngine:
    """A `VllmEngine` for prompts of up to 8 and completions of up to 12 tokens."""
    return VllmEngine(PlainCore(policy, temperature), policy, slots, 8, 12, interruption)
