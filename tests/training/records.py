"""Groups as they lie in the rollout buffer, filled with random completions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.runtime.rollout_buffer import BufferShape, Finish

WIDTH, PROMPT_WIDTH, GROUP_SIZE = 10, 6, 3


@dataclass(frozen=True)
class Completion:
    """Its tokens, which of them were sampled, and its reward."""

    tokens: list[int]
    mask: list[bool]
    reward: float


def record(prompt: list[int], completions: list[Completion], index: int = 0) -> np.void:
    """One READY slot. Whatever is not a completion's token is poison: a stale slot may hold anything there."""
    shape = BufferShape(1, len(completions), PROMPT_WIDTH, WIDTH)
    slot = np.zeros(1, shape.record)[0]
    slot["tokens"], slot["logprobs"], slot["versions"], slot["mask"] = -7, np.nan, -99, True
    slot["prompt"], slot["prompt_index"] = -7, index
    slot["prompt_length"] = len(prompt)
    slot["prompt"][: len(prompt)] = prompt
    for row, completion in enumerate(completions):
        count = len(completion.tokens)
        slot["tokens"][row, :count] = completion.tokens
        slot["mask"][row, :count] = completion.mask
        slot["versions"][row, :count] = 3
        slot["lengths"][row] = count
        slot["rewards"][row] = completion.reward
        slot["finish"][row] = Finish.EOS if completion.tokens[-1] == 2 else Finish.LENGTH
        slot["interrupted"][row] = not all(completion.mask)
    return slot


def random_records(
    policy: Policy, groups: int, seed: int = 0, flat: tuple[int, ...] = (), noise: float = 0.5
) -> list[np.void]:
    """Groups of random lengths 1 to WIDTH, about a quarter of the tokens forced, rewards from 0 to 1 (all equal in the
    groups `flat`), behaviour log-probabilities near the policy's own, so that ratios lie about 1."""
    rng = np.random.default_rng(seed)
    records = []
    for number in range(groups):
        prompt = [1, *rng.integers(3, 24, rng.integers(0, PROMPT_WIDTH)).tolist()]
        completions = []
        for sample in range(GROUP_SIZE):
            count = int(rng.integers(1, WIDTH + 1))
            tokens = rng.integers(2, 24, count).tolist()
            reward = 1.0 if number in flat else [0.0, 1.0, float(rng.choice([0.0, 0.25, 1.0]))][sample]
            completions.append(Completion(tokens, (rng.random(count) < 0.75).tolist(), reward))
        slot = record(prompt, completions, number)
        fill_logprobs(policy, slot, rng, noise)
        records.append(slot)
    return records


def fill_logprobs(policy: Policy, slot: np.void, rng: np.random.Generator, noise: float) -> None:
    """Behaviour log-probabilities: the policy's plus noise. Forced tokens have one too, as in real completions."""
    prompt = slot["prompt"][: slot["prompt_length"]].tolist()
    for row, count in enumerate(slot["lengths"]):
        ids = torch.tensor([*prompt, *slot["tokens"][row, :count].tolist()])
        with torch.no_grad():
            targets = torch.arange(len(prompt), len(ids))
            logprobs = policy.score(ids, torch.tensor([len(ids)]), targets, 1.0)[0].numpy()
        slot["logprobs"][row, :count] = logprobs + noise * rng.standard_normal(count)
