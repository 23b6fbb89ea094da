"""Forced interruption: the phrase that ends thinking once a budget of tokens is used up (paper section 2).

The budget of each completion is drawn uniformly from a range, from the completion's own seed. The phrase is forced
token by token; its tokens were not sampled from the policy, so they carry mask False and get no gradient (the paper
does not say; they are conditions like the prompt, not actions).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalerl_mini.seeds import uniform

_BUDGET_COUNTER = np.uint64(2**40)  # far away from the counters of tokens


@dataclass(frozen=True)
class Interruption:
    """phrase: token ids that are forced. think_end: token ids by which a completion ends its thinking itself.

    min_tokens, max_tokens: inclusive range of the thinking budget, in tokens of the completion.
    """

    phrase: tuple[int, ...]
    think_end: tuple[int, ...]
    min_tokens: int
    max_tokens: int

    def budget(self, seed: int) -> int:
        """The thinking budget of the completion with this seed."""
        draw = uniform(np.array([seed], np.uint64), np.array([_BUDGET_COUNTER]))[0]
        return self.min_tokens + int(draw * (self.max_tokens - self.min_tokens + 1))
