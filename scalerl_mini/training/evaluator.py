"""The trainer's side of an evaluation: ask, help, wait, log one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scalerl_mini.rollout.evaluation import EvaluationWorker, summarise_sets
from scalerl_mini.rollout.evaluation_sets import EvaluationSet
from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.evaluation_board import EvaluationBoard
from scalerl_mini.runtime.waiting import wait_until
from scalerl_mini.training.compute import ComputeMeter
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.run_spec import TRAINER


@dataclass
class Evaluator:
    """Evaluates the newest published version; training stands still meanwhile.

    worker: None when the trainer does not help. newest: last version evaluated, -1 before the first.
    """

    board: EvaluationBoard
    worker: EvaluationWorker | None
    control: Control
    folder: RunFolder
    sets: list[EvaluationSet]
    deadline_s: float
    generators: list[str]
    newest: int = -1

    def run(self, version: int, meter: ComputeMeter) -> dict[str, Any]:
        """Sample all prompts of all sets under `version` and append a row to evals.jsonl; returns the row."""
        self.board.open(version)
        if self.worker:
            self.worker.share()
        wait_until(
            lambda: self.board.done == self.board.prompts,
            f"the evaluation of version {version}",
            control=self.control,
            role=TRAINER,
            deadline_s=self.deadline_s,
            who=self.generators,
        )
        row = {
            "step": version,
            "policy_version": version,
            **meter.row(),
            **summarise_sets(self.board.results, self.sets),
        }
        self.folder.eval_log.append(row)
        self.newest = version
        return row
