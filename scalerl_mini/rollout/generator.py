"""The generator process: claims prompts, samples groups, takes new weights whenever they are there.

    while the run goes on:
        newer weights in the channel?   load them between two decode steps, cache kept
        an evaluation asked for?        sample held-out prompts under exactly that version
        room for a group?               claim the next ticket of the rollout buffer
        otherwise                       one decode step for all running completions

It knows no engine in particular and decides nothing about lag: a ticket says which version must be loaded before its
group may start, and the trainer issues no ticket that could become too old (`runtime.gate`).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalerl_mini.policy.model import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.engines import Engine, Finished
from scalerl_mini.rollout.evaluation import EvaluationWorker
from scalerl_mini.rollout.grading import Grader
from scalerl_mini.rollout.sampling import RequestFactory
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.rollout_buffer import Finish, RolloutBuffer
from scalerl_mini.runtime.weight_channel import WeightChannel
from scalerl_mini.tasks.grade import Grade

logger = logging.getLogger(__name__)
IDLE_S = 0.001


@dataclass
class OpenGroup:
    """A group whose completions are being sampled; `record` is its slot in shared memory, `left` are not graded yet."""

    record: Any
    left: int


@dataclass
class Generator:
    """The loop over an engine. `owner` numbers the generator process; `role` is its name in the control block."""

    owner: int
    role: str
    policy: Policy
    weights: WeightBytes
    engine: Engine
    grader: Grader
    prompts: list[tuple[int, ...]]
    requests: RequestFactory
    evaluation: EvaluationWorker
    buffer: RolloutBuffer
    channel: WeightChannel
    control: Control
    group_size: int

    def __post_init__(self) -> None:
        self.open: dict[int, OpenGroup] = {}
        self.evaluated = 0

    def run(self) -> None:
        """Until the stop flag is set."""
        while not self.control.stopping:
            self.turn()

    def turn(self) -> None:
        """One round of the loop."""
        if self.channel.version > self.policy.version:
            self.load()
        if self.evaluation.board.request > self.evaluated:
            self._evaluate()
        while self.engine.free >= self.group_size and self._claim():
            pass
        if self.engine.running:
            self.control.beat(self.role, Stage.GENERATING)
            for finished in self.engine.step():
                self._collect(finished)
            self.control.add(self.role, "decode_steps", 1)
        else:
            self._idle()
        for key, grade in self.grader.collect():
            self._reward(key, grade)

    def load(self) -> None:
        """Take the newest whole version. Running completions go on with it; their cache is kept."""
        self.control.beat(self.role, Stage.LOADING)
        version, checksum = self.channel.read(self.weights.views)
        self.weights.push(version)
        self.control.put(self.role, "loaded_version", version)
        self.control.put(self.role, "loaded_checksum", checksum)
        self.control.add(self.role, "weight_loads", 1)

    def _evaluate(self) -> None:
        self.evaluated = self.evaluation.board.request
        if self.policy.version < self.evaluation.board.version:
            self.load()
        self.control.beat(self.role, Stage.EVALUATING)
        start = time.monotonic()
        self.evaluation.share()
        self.control.add(self.role, "evaluation_s", time.monotonic() - start)

    def _claim(self) -> bool:
        """Start the oldest group that may start under the loaded version; False when there is none."""
        record = self.buffer.claim(self.owner, self.policy.version)
        if record is None:
            return False
        sequence, index, epoch = int(record["sequence"]), int(record["prompt_index"]), int(record["epoch"])
        prompt = self.prompts[index]
        record["prompt_length"] = len(prompt)
        record["prompt"][: len(prompt)] = prompt
        self.open[sequence] = OpenGroup(record, self.group_size)
        for sample in range(self.group_size):
            self.engine.submit(self.requests.make(prompt, (sequence, sample), "train", index, epoch, sample))
        self.control.add(self.role, "prompt_tokens", len(prompt))
        return True

    def _collect(self, finished: Finished) -> None:
        """Write a completion into its group's slot and have it graded."""
        sequence, sample = finished.key
        record, count = self.open[sequence].record, len(finished.tokens)
        record["tokens"][sample, :count] = finished.tokens
        record["logprobs"][sample, :count] = finished.logprobs
        record["versions"][sample, :count] = finished.versions
        record["mask"][sample, :count] = finished.mask
        record["lengths"][sample] = count
        record["finish"][sample] = Finish[finished.finish.upper()]
        record["interrupted"][sample] = finished.interrupted
        self.control.add(self.role, "generated_tokens", count)
        self.grader.submit(finished.key, int(record["prompt_index"]), self.policy.decode(finished.tokens))

    def _reward(self, key: tuple[int, int], grade: Grade) -> None:
        """Write a grade into its group's slot, and hand the group over when it was the last."""
        sequence, sample = key
        group = self.open[sequence]
        group.record["rewards"][sample] = np.float32(grade.reward)
        group.record["grading"][sample] = grade.verdict
        group.left -= 1
        if group.left == 0:
            del self.open[sequence]
            self.buffer.commit(sequence)

    def _idle(self) -> None:
        """Nothing to sample: every group that may exist is waiting for the trainer, or for its grades."""
        self.control.beat(self.role, Stage.WAITING)
        start = time.monotonic()
        time.sleep(IDLE_S)
        self.control.add(self.role, "wait_s", time.monotonic() - start)
