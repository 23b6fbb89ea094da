"""Held-out evaluation of exactly one policy version, shared by every process that holds it.

    trainer: publish version v ─► request(v) ─► share() ─► wait until every prompt is done ─► summary
    generator:     load v ─────► sees the request ─► share()

Held-out prompts come first, those of a downstream task after them (`evaluation_sets`).
Both pause their training work meanwhile, so nothing is published or loaded during an evaluation and its time is not
training compute. The same held-out prompts and the same seeds are used each time, so the between-prompt spread drops out
of the curve.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalerl_mini.policy.model import Policy
from scalerl_mini.rollout.engines import Engine, Finished
from scalerl_mini.rollout.evaluation_sets import EvaluationSet, find_set
from scalerl_mini.runtime.evaluation_board import EvaluationBoard
from scalerl_mini.tasks.grade import Grade, Verdict

CHUNK = 16  # prompts taken at a time, at most
IDLE_S = 0.001


@dataclass
class EvaluationWorker:
    """Samples and grades chunks of prompts with its own engine; one in each process, numbered by `owner`.

    sets: what the board's prompts are, one set after another.
    """

    board: EvaluationBoard
    owner: int
    engine: Engine
    policy: Policy
    sets: list[EvaluationSet]
    beat: Callable[[], None]

    def share(self) -> None:
        """Work on the open evaluation until no prompt is left to take. The policy must hold the board's version, and the
        engine at least as many free slots as there are samples a prompt. A caller so late that the others have done it
        all and gone on finds nothing to do."""
        if self.policy.version < self.board.version:
            raise RuntimeError(f"evaluation of version {self.board.version} with weights of {self.policy.version}")
        chunk = max(1, min(CHUNK, self.engine.free // self.board.samples))
        left: dict[int, int] = {}
        more = True
        while more or left:
            while more and self.engine.free >= chunk * self.board.samples:
                taken = self.board.take(chunk, self.policy.version, self.owner)
                more = len(taken) > 0
                for prompt in taken:
                    left[prompt] = self.board.samples
                    self._submit(prompt)
            if left and not self.engine.running:
                time.sleep(IDLE_S)  # everything is sampled, some grades are still to come
            for finished in self.engine.step():
                self._collect(finished)
            for one in self.sets:
                for key, grade in one.grader.collect():
                    self._reward(key, grade, left)
            self.beat()

    def _submit(self, prompt: int) -> None:
        one, number = find_set(self.sets, prompt)
        for sample in range(self.board.samples):
            ids = one.prompts[number]
            self.engine.submit(one.requests.make(ids, (prompt, sample), one.role, number, 0, sample))

    def _collect(self, finished: Finished) -> None:
        """Write a completion's figures into its prompt's row and have it graded."""
        prompt, sample = finished.key
        row = self.board.results[prompt]
        row["length"][sample] = len(finished.tokens)
        row["logprob_sum"][sample] = finished.logprobs[finished.mask].sum(dtype=np.float64)
        row["sampled"][sample] = finished.mask.sum()
        row["truncated"][sample] = finished.finish == "length"
        row["interrupted"][sample] = finished.interrupted
        one, number = find_set(self.sets, prompt)
        one.grader.submit(finished.key, number, self.policy.decode(finished.tokens))

    def _reward(self, key: tuple[int, int], grade: Grade, left: dict[int, int]) -> None:
        """Write a grade into its prompt's row, and call the row done when it was the last."""
        prompt, sample = key
        row = self.board.results[prompt]
        row["reward"][sample] = grade.reward
        row["grading"][sample] = grade.verdict
        left[prompt] -= 1
        if left[prompt] == 0:
            del left[prompt]
            row["done"] = True


def summarise_sets(results: np.ndarray, sets: list[EvaluationSet]) -> dict[str, object]:
    """`summarise` of each set's rows; the keys of a downstream set begin with its prefix."""
    row, start = dict[str, object](), 0
    for one in sets:
        rows = results[start : start + len(one.prompts)]
        row |= {one.prefix + key: value for key, value in summarise(rows, one.levels).items()}
        start += len(one.prompts)
    return row


def summarise(results: np.ndarray, levels: list[str]) -> dict[str, object]:
    """One evaluation as plain numbers, from the board's result rows.

    pass_rate_stderr is for this fixed prompt set: sqrt(mean p(1-p) / samples in all), with p(1-p) of each prompt
    estimated from its own samples (unbiased; with one sample a prompt, from the mean pass rate - an upper bound).
    entropy is estimated by the mean of -log p over sampled tokens, in nats.
    """
    reward = results["reward"].astype(np.float64)
    samples = reward.shape[1]
    mean = float(reward.mean())
    within = reward.var(axis=1, ddof=1).mean() if samples > 1 else mean * (1 - mean)
    by_level = {level: float(reward[[name == level for name in levels]].mean()) for level in dict.fromkeys(levels)}
    return {
        "pass_rate": mean,
        "pass_rate_stderr": float(np.sqrt(within / reward.size)),
        "prompts": len(reward),
        "samples_per_prompt": samples,
        "truncation_rate": float(results["truncated"].mean()),
        "interruption_rate": float(results["interrupted"].mean()),
        "mean_length": float(results["length"].mean()),
        "entropy": float(-results["logprob_sum"].sum() / max(int(results["sampled"].sum()), 1)),
        "grading_errors": int((results["grading"] == Verdict.ERROR).sum()),
        "grading_timeouts": int((results["grading"] == Verdict.TIMEOUT).sum()),
        "pass_rate_by_level": by_level,
    }
