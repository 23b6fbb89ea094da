"""One optimiser batch: the groups taken from the rollout buffer, their advantages and weights, cut into micro-batches.

Advantages, the zero-variance filter and every token's weight are computed here, once, on the whole batch. A micro-batch
is a set of whole completions with their rows of those; how the batch is cut changes memory and speed, never the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scalerl_mini.config_groups import ObjectiveConfig
from scalerl_mini.objective import group_advantages, token_weights
from scalerl_mini.runtime.rollout_buffer import Finish
from scalerl_mini.tasks.grade import Verdict

CORRECT = 1.0  # a completion with full reward


@dataclass(frozen=True)
class MicroBatch:
    """n completions. ids [sum of lengths] of prompt + completion, one after another; lengths [n].

    targets [M]: places in ids of the trained tokens; row, column [M]: their place in the [n, T] arrays below.
    """

    ids: Tensor
    lengths: Tensor
    targets: Tensor
    row: Tensor
    column: Tensor
    behavior_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Batch:
    """P groups of G completions, N = P * G rows; arrays are copies, valid after the slots are freed.

    prompts: token ids of each row's prompt. tokens, behavior_logprobs, versions, mask: [N, T]. lengths [N].
    rewards [P, G] as graded, before any length penalty; grading [P, G]: the Verdict of each;
    keep [P]: groups left by the zero-variance filter;
    advantages [N]; weights [N, T].
    sampled_tokens: tokens the policy sampled; dropped_tokens: those of them left out of the mask because their behaviour
    log-probability was not finite.
    """

    prompt_index: list[int]
    prompts: list[np.ndarray]
    tokens: np.ndarray
    behavior_logprobs: np.ndarray
    versions: np.ndarray
    mask: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray
    interrupted: np.ndarray
    rewards: np.ndarray
    grading: np.ndarray
    keep: np.ndarray
    advantages: Tensor
    weights: Tensor
    sampled_tokens: int
    dropped_tokens: int

    @property
    def trained_rows(self) -> np.ndarray:
        """bool [N]: completions that reach the loss."""
        return np.repeat(self.keep, self.rewards.shape[1])

    @property
    def trained_tokens(self) -> int:
        """Tokens with a gradient."""
        return int(self.mask[self.trained_rows].sum())

    def count(self, verdict: Verdict) -> int:
        """Completions whose grading went so."""
        return int((self.grading == verdict).sum())

    @property
    def unusable(self) -> bool:
        """Whether no sampled token has a finite behaviour log-probability: the generator's weights are broken."""
        return self.dropped_tokens == self.sampled_tokens > 0

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens the generator computed: each group's prompt once."""
        return sum(len(prompt) for prompt in self.prompts[:: self.rewards.shape[1]])

    def lag(self, version: int) -> np.ndarray:
        """Age in policy versions of every sampled token of the batch when `version` trains on it."""
        return version - self.versions[self.mask]

    def micro_batches(self, tokens: int, device: torch.device) -> Iterator[MicroBatch]:
        """Completions that reach the loss, sorted by length and cut into runs of at most `tokens` tokens each (a longer
        completion stands alone)."""
        total = self.lengths + np.array([len(prompt) for prompt in self.prompts])
        rows = np.flatnonzero(self.trained_rows & self.mask.any(1))
        rows = rows[np.argsort(total[rows], kind="stable")]
        start = 0
        for stop in range(1, len(rows) + 1):
            if stop == len(rows) or total[rows[start : stop + 1]].sum() > tokens:
                yield self._cut(rows[start:stop], total, device)
                start = stop

    def _cut(self, rows: np.ndarray, total: np.ndarray, device: torch.device) -> MicroBatch:
        width = int(self.lengths[rows].max())
        mask = self.mask[rows, :width]
        row, column = np.nonzero(mask)
        starts = np.cumsum(total[rows]) - total[rows]
        prompt_lengths = np.array([len(self.prompts[n]) for n in rows])
        ids = np.concatenate([np.concatenate([self.prompts[n], self.tokens[n, : self.lengths[n]]]) for n in rows])
        index = torch.from_numpy(rows)

        def on_device(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device)

        return MicroBatch(
            ids=on_device(ids.astype(np.int64)),
            lengths=on_device(total[rows]),
            targets=on_device((starts + prompt_lengths)[row] + column),
            row=on_device(row),
            column=on_device(column),
            behavior_logprobs=on_device(self.behavior_logprobs[rows, :width]),
            advantages=self.advantages[index].to(device),
            weights=self.weights[index, :width].to(device),
            mask=on_device(mask),
        )


def assemble(records: list[Any], objective: ObjectiveConfig) -> Batch:
    """Copy READY records out of the rollout buffer and compute advantages and weights for the whole batch."""
    groups = range(len(records))
    stack = {name: np.concatenate([record[name] for record in records]) for name in _ROW_FIELDS}
    finite = np.isfinite(stack["logprobs"])
    sampled = stack["mask"] & (np.arange(stack["mask"].shape[1]) < stack["lengths"][:, None])
    truncated = stack["finish"] == Finish.LENGTH
    mask = sampled & finite
    if objective.exclude_truncated:
        mask &= ~truncated[:, None]
    rewards = np.stack([record["rewards"] for record in records])
    penalised = rewards + _length_penalty(rewards, stack["lengths"].reshape(rewards.shape), objective)
    advantages, keep = group_advantages(
        torch.from_numpy(penalised).double(),
        objective.advantage_norm,
        zero_variance_filter=objective.zero_variance_filter,
    )
    group_size = rewards.shape[1]
    trained = torch.from_numpy(mask) & keep.repeat_interleave(group_size)[:, None]
    group_index = torch.arange(len(records)).repeat_interleave(group_size)
    return Batch(
        prompt_index=[int(record["prompt_index"]) for record in records],
        prompts=[
            records[p]["prompt"][: int(records[p]["prompt_length"])].copy() for p in groups for _ in range(group_size)
        ],
        tokens=stack["tokens"],
        behavior_logprobs=stack["logprobs"],
        versions=stack["versions"],
        mask=mask,
        lengths=stack["lengths"].astype(np.int64),
        truncated=truncated,
        interrupted=stack["interrupted"],
        rewards=rewards,
        grading=np.stack([record["grading"] for record in records]),
        keep=keep.numpy(),
        advantages=advantages.float().flatten(),
        weights=token_weights(trained, group_index, objective.aggregation),
        sampled_tokens=int(sampled.sum()),
        dropped_tokens=int((sampled & ~finite).sum()),
    )


def _length_penalty(rewards: np.ndarray, lengths: np.ndarray, objective: ObjectiveConfig) -> np.ndarray:
    """clip((L_max - |y|) / L_cache - 1, -1, 0) on correct completions, 0 on others: [P, G] (paper section 2).

    The paper's rewards span 2 (+1 / -1), ours span 1, so the penalty is halved to weigh the same against the reward.
    """
    if not objective.length_penalty_limit:
        return np.zeros_like(rewards)
    penalty = (objective.length_penalty_limit - lengths) / objective.length_penalty_cache - 1
    return np.where(rewards >= CORRECT, penalty.clip(-1, 0) / 2, 0).astype(rewards.dtype)


_ROW_FIELDS = ("tokens", "logprobs", "versions", "mask", "lengths", "finish", "interrupted")
