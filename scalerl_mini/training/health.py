"""When a run makes no sense any more: numbers that are not finite, and batches that teach nothing, several in a row.

A step with a non-finite loss or gradient is skipped: weights and optimiser stay as they were, the batch is consumed and
the version goes on, as after a batch of flat groups - the order of prompts, the gate and the logs need no special case.
One such step may be bad luck. Many in a row are a broken model: the run fails, and nothing of that state is saved.
A batch without a single advantage teaches nothing either; many in a row mean that the task is solved, too hard, or graded
wrongly: the run ends in order, with the reason.
"""

from __future__ import annotations

from typing import Any

from scalerl_mini.config_groups import TrainingConfig
from scalerl_mini.tasks.grade import Verdict
from scalerl_mini.training.batch import CORRECT, Batch


class Health:
    """Counts skipped and flat steps, in a row and in all."""

    def __init__(self, config: TrainingConfig) -> None:
        self.config = config
        self.skipped_steps, self.bad_in_a_row, self.flat_in_a_row = 0, 0, 0
        self.ending: str | None = None

    def note(self, version: int, batch: Batch, skipped: str | None) -> None:
        """Count the step that trained `batch` at `version`; `skipped`: what was not finite, if it was skipped.

        Raises FloatingPointError after more than `training.bad_steps_allowed` skipped steps in a row. After
        `training.flat_steps_allowed` flat ones `ending` says why the run should end.
        """
        self.skipped_steps += skipped is not None
        self.bad_in_a_row = self.bad_in_a_row + 1 if skipped else 0
        self.flat_in_a_row = 0 if skipped or bool(batch.advantages.any()) else self.flat_in_a_row + 1
        if self.bad_in_a_row > self.config.bad_steps_allowed:
            raise FloatingPointError(
                f"{skipped} at version {version}, and so it went in the {self.bad_in_a_row - 1} steps before; nothing of"
                " them was saved, the last checkpoint stays: look at the model, or train anew with a lower training.lr"
            )
        if self.flat_in_a_row >= self.config.flat_steps_allowed:
            self.ending = f"for {self.flat_in_a_row} steps {_verdict(batch)}"

    def state(self) -> dict[str, Any]:
        """What a resumed run goes on counting from, as plain JSON."""
        return {
            "skipped_steps": self.skipped_steps,
            "bad_in_a_row": self.bad_in_a_row,
            "flat_in_a_row": self.flat_in_a_row,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self.skipped_steps = state["skipped_steps"]
        self.bad_in_a_row, self.flat_in_a_row = state["bad_in_a_row"], state["flat_in_a_row"]


def _verdict(batch: Batch) -> str:
    failures = batch.grading.size - batch.count(Verdict.GRADED)
    if 2 * failures > batch.grading.size:
        return (
            f"nothing could be learned, the grader failed {failures} times of {batch.grading.size}; see logs/ for why"
        )
    if (batch.rewards >= CORRECT).all():
        return "every completion was right: there is nothing left to learn; give the task harder prompts"
    if (batch.rewards <= 0).all():
        return (
            "every completion was wrong: nothing can be learned; give easier prompts, and read rollouts/ and the logs"
        )
    return (
        "all rewards within each group were equal: nothing can be learned; raise rollout.group_size or mend the grader"
    )
