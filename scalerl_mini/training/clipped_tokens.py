"""Which tokens the loss's bound takes hold of: the "fork token" effect, counted over a whole run.

Clipping of the PPO type takes the gradient from tokens whose probability has moved most, and those are few and rare: the
words at which a completion decides where to go (2506.13585, the reason for CISPO). CISPO caps their ratio and keeps their
gradient. Whether that happens in a run can be read here: for each token how often it was trained and how often it was
clipped (GRPO, DAPO; for GSPO with its whole completion) or capped (CISPO), good completions apart from bad ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scalerl_mini.training.disk import write_whole, writing

LISTED = 50
COLUMNS = ("seen_positive", "clipped_positive", "seen_negative", "clipped_negative")


class ClippedTokens:
    """`counts` int64 [4, V]: how often each token was trained and clipped, by the sign of its advantage (`COLUMNS`)."""

    def __init__(self, vocabulary: int) -> None:
        self.counts = torch.zeros(len(COLUMNS), vocabulary, dtype=torch.int64)

    def add(self, tokens: Tensor, advantages: Tensor, clipped: Tensor) -> None:
        """Count trained tokens: ids, advantages and whether the bound was in force, each [M]."""
        for first, sign in ((0, advantages > 0), (2, advantages < 0)):
            for row, chosen in ((first, sign), (first + 1, sign & clipped)):
                self.counts[row] += tokens[chosen].bincount(minlength=self.counts.shape[1]).cpu()

    def table(self, decode: Callable[[list[int]], str], most: int = LISTED) -> list[dict[str, Any]]:
        """The tokens clipped most often, with their text; ties in the order of their ids."""
        clipped = self.counts[1] + self.counts[3]
        order = clipped.argsort(descending=True, stable=True)[:most].tolist()
        return [
            {"token": token, "text": decode([token]), **dict(zip(COLUMNS, self.counts[:, token].tolist(), strict=True))}
            for token in order
            if clipped[token]
        ]

    def write(self, path: Path, decode: Callable[[list[int]], str], version: int) -> None:
        """The table as JSON, with the totals it is a part of. Raises UserError when the disk does not take it."""
        totals = dict(zip(COLUMNS, self.counts.sum(1).tolist(), strict=True))
        table = {"policy_version": version, **totals, "tokens": self.table(decode)}
        with writing(path):
            write_whole(path, json.dumps(table, indent=1, ensure_ascii=False) + "\n")

    def state(self) -> dict[str, list[int]]:
        """Counts of the tokens that occurred, as plain JSON."""
        return {str(token): self.counts[:, token].tolist() for token in self.counts.sum(0).nonzero().flatten().tolist()}

    def restore(self, state: dict[str, list[int]]) -> None:
        """Continue from `state()`."""
        for token, counts in state.items():
            self.counts[:, int(token)] = torch.tensor(counts)
