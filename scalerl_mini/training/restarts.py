"""After a death: how often a run is helped up, and how a generator's unfinished work finds another hand. No torch here.

A generator is replaced while the others go on: what it held is issued again under its old place in the order, and since a
completion is a function of its seeds, the weights and nothing else, the one who takes it over begins from the start. When
the trainer dies the whole run goes back to the newest checkpoint (`training.launcher`).
"""

from __future__ import annotations

import contextlib

from scalerl_mini.errors import UserError
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.evaluation_board import EvaluationBoard
from scalerl_mini.runtime.rollout_buffer import RolloutBuffer
from scalerl_mini.runtime.supervisor import ChildFailed
from scalerl_mini.training.run_folder import RunFolder, timestamp
from scalerl_mini.training.run_spec import TRAINER, RunSpec, generator_roles

FIRST_DELAY_S = 0.5


class Restarts:
    """Counts the deaths since the run last got further than ever before, and writes each into run.json."""

    def __init__(self, allowed: int, folder: RunFolder) -> None:
        """allowed: deaths in a row after which the run still goes on; 0 ends it at the first."""
        self.allowed, self.folder = allowed, folder
        self.furthest = -1
        self.deaths: list[ChildFailed] = []

    def after(self, death: ChildFailed, version: int) -> float:
        """Count a death; returns how many seconds to wait before the next start: 0.5, 1, 2 ...

        version: the newest policy version at the death, -1 before there is one. Raises the first of too many deaths in a
        row, which is the likely cause of the others, and at once a death that would come again.
        """
        if version > self.furthest:
            self.furthest = version
            self.deaths.clear()
        self.deaths.append(death)
        self._write_down(death, version)
        if death.again:
            raise death
        if len(self.deaths) > self.allowed:
            raise self.deaths[0]
        return FIRST_DELAY_S * 2 ** (len(self.deaths) - 1)

    def _write_down(self, death: ChildFailed, version: int) -> None:
        row = {"role": death.role, "cause": death.cause, "version": version, "time": timestamp()}
        with contextlib.suppress(OSError, UserError):  # a disk that takes no more must not hide the death it caused
            self.folder.update_record(deaths=[*self.folder.read_record().get("deaths", []), row])


def give_back(spec: RunSpec, control: Control, role: str, deadline_s: float) -> str:
    """Have the groups and held-out prompts that a dead generator held handed out again; returns a text for the log.

    TimeoutError when somebody holds one of the locks for longer than `deadline_s`.
    """
    if control.stage(TRAINER) == Stage.STARTING:  # the segments are still being made, so nothing has been handed out
        return "it held nothing"
    buffer = RolloutBuffer.attach(spec.segment_path("rollouts"))
    board = EvaluationBoard.attach(spec.segment_path("evaluation"))
    try:
        groups = buffer.reissue(generator_roles(spec.config).index(role), deadline_s)
        prompts = board.give_back(control.roles.index(role), deadline_s)
    finally:
        buffer.close()
        board.close()
    return f"{len(groups)} groups" + (f" and {len(prompts)} held-out prompts" if prompts else "") + " issued again"
