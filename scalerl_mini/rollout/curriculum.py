"""Which prompt comes next: shuffled epochs, and No-Positive-Resampling (paper section 2).

Each epoch is a permutation drawn from the run's seed and the epoch's number alone. The pass rate of a prompt's last
visit is remembered, and a prompt whose last pass rate has reached the threshold is left out of all later epochs. (The
paper does not say whether "historical" means last or cumulative; on a real history the two drop 22 % and 18 %. The last
visit says more about the policy of today.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scalerl_mini.seeds import derive_seed

ROUNDING = 1e-6  # pass rates are means of fp32 rewards: 9 of 10 come out as 0.89999998


class CurriculumExhausted(Exception):
    """No-Positive-Resampling has dropped every prompt."""


class Curriculum:
    """Draws prompts in order and keeps their pass rates; owned by the trainer."""

    def __init__(self, prompts: int, seed: int, threshold: float | None) -> None:
        """prompts: size of the training set. threshold: pass rate in (0, 1] at which a prompt is dropped, or None."""
        self.seed, self.threshold = seed, threshold
        self.pass_rate = np.full(prompts, np.nan)
        self.epoch, self.cursor = 0, 0
        self._order = self._permutation()

    def draw(self) -> tuple[int, int]:
        """The next prompt: its index and the epoch. Raises CurriculumExhausted when none is left."""
        for _ in range(2 * len(self.pass_rate) + 1):
            if self.cursor == len(self._order):
                self.epoch, self.cursor = self.epoch + 1, 0
                self._order = self._permutation()
            prompt = int(self._order[self.cursor])
            self.cursor += 1
            if not self.dropped[prompt]:
                return prompt, self.epoch
        raise CurriculumExhausted(
            f"No-Positive-Resampling has dropped all {len(self.pass_rate)} training prompts; "
            "add prompts or raise objective.no_positive_resampling"
        )

    def record(self, prompt: int, pass_rate: float) -> None:
        """Remember the pass rate of a prompt's newest visit."""
        self.pass_rate[prompt] = pass_rate

    @property
    def dropped(self) -> np.ndarray:
        """bool [prompts]: left out of later draws."""
        if self.threshold is None:
            return np.zeros(len(self.pass_rate), bool)
        return np.nan_to_num(self.pass_rate, nan=-1.0) >= self.threshold - ROUNDING

    def _permutation(self) -> np.ndarray:
        rng = np.random.default_rng(derive_seed(self.seed, "epoch", self.epoch))
        return rng.permutation(len(self.pass_rate))

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs, as plain JSON."""
        seen = np.flatnonzero(~np.isnan(self.pass_rate))
        history = {str(prompt): float(self.pass_rate[prompt]) for prompt in seen}
        return {"epoch": self.epoch, "cursor": self.cursor, "pass_rate": history}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self.epoch, self.cursor = state["epoch"], state["cursor"]
        self._order = self._permutation()
        for prompt, pass_rate in state["pass_rate"].items():
            self.pass_rate[int(prompt)] = pass_rate
