"""The trainer process: takes batches strictly in order, trains, publishes - and decides everything.

    issue tickets ─► wait for batch v ─► train ─► publish version v + 1 ─► free its slots, issue new tickets ─► ...
                                                        │
                                       evaluation, log row, checkpoint when due

It alone knows the curriculum and the staleness gate; generators only fill tickets. `run` is the whole algorithm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scalerl_mini.config import Config
from scalerl_mini.policy.model import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.curriculum import Curriculum, CurriculumExhausted
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.gate import StalenessGate, Ticket
from scalerl_mini.runtime.rollout_buffer import RolloutBuffer
from scalerl_mini.runtime.waiting import Stopped, wait_until
from scalerl_mini.runtime.weight_channel import WeightChannel
from scalerl_mini.training import garbage
from scalerl_mini.training.batch import Batch, assemble
from scalerl_mini.training.checkpoint import save_checkpoint
from scalerl_mini.training.compute import ComputeMeter
from scalerl_mini.training.evaluator import Evaluator
from scalerl_mini.training.health import Health
from scalerl_mini.training.learner import Learner
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.run_spec import TRAINER
from scalerl_mini.training.self_check import self_check
from scalerl_mini.training.step_row import rollout_rows, step_row

logger = logging.getLogger(__name__)


@dataclass
class Trainer:
    """Everything a training run needs, already built; see `training.processes` for how."""

    config: Config
    folder: RunFolder
    policy: Policy
    learner: Learner
    curriculum: Curriculum
    gate: StalenessGate
    buffer: RolloutBuffer
    channel: WeightChannel
    control: Control
    evaluator: Evaluator
    meter: ComputeMeter
    generators: list[str]
    prompts_digest: str
    outstanding: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = WeightBytes(self.policy)
        self.generator_wait = 0.0
        self.exhausted: str | None = None
        self.health = Health(self.config.training)

    def run(self) -> str | None:
        """Train to the last step; returns why the run ended early, or None. The newest state is always saved."""
        reason = None
        try:
            self._send()
            self._evaluate_if_due()
            self.meter.start()
            self._issue()
            while self._batch_is_issued() and not self.health.ending:
                self._step()
            if self.policy.version < self.config.training.steps:
                reason = self.health.ending or self.exhausted
                self._evaluate()
        except Stopped as ending:
            reason = str(ending)
        self.meter.pause()
        self._checkpoint()
        return reason

    def _batch_is_issued(self) -> bool:
        """Whether there is a next batch: not after the last step, nor when the curriculum has too few prompts left."""
        return self.gate.issued >= self.gate.batch(self.policy.version).stop

    def _step(self) -> None:
        version = self.policy.version
        sequences = self.gate.batch(version)
        phase = self._phase(sequences)
        waited = self._wait_for(phase)
        refilled, more = self._refill(phase)
        waited += more
        self.control.beat(TRAINER, Stage.TRAINING)
        start = time.monotonic()
        batch = assemble([self.buffer.view(sequence) for sequence in sequences], self.config.objective)
        updates = self.learner.optimizer.updates
        metrics, forward_tokens = self.learner.update(batch)
        if not updates:
            self_check(metrics, self.config.model, experts=self.policy.active_experts < 1)
        self.health.note(version, batch, metrics["skipped"])
        self._publish(version + 1)
        self.meter.add(batch, forward_tokens, batch.trained_tokens if self.learner.optimizer.updates > updates else 0)
        self._remember(batch)
        self.buffer.free(sequences)
        for sequence in sequences:
            del self.outstanding[sequence]
        self._issue()
        timing = {
            "trainer_wait_s": waited,
            "generator_wait_s": self._generator_wait(),
            "train_s": time.monotonic() - start,
        }
        buffered = self.buffer.counts()["ready"]
        counts = {
            "buffered_groups": buffered,
            "refilled_groups": refilled,
            "skipped_steps": self.health.skipped_steps,
        }
        self.folder.step_log.append(step_row(batch, version, metrics, timing, self.meter, counts))
        self.folder.write_rollouts(version + 1, rollout_rows(batch, self.policy))
        self._evaluate_if_due()
        if self.policy.version % self.config.runtime.checkpoint_every == 0 and not self.health.bad_in_a_row:
            self._checkpoint()

    def _phase(self, sequences: range) -> range:
        """What must be sampled before `sequences` are trained: they alone, or in PPO mode all that is issued, because a
        phase trains only when all of it has been generated."""
        return sequences if self.config.pipeline.mode == "pipeline" else range(sequences.start, self.gate.issued)

    def _refill(self, sequences: range) -> tuple[int, float]:
        """Dynamic sampling: give the places of flat groups to new prompts; returns how many and the seconds waited.

        A group that is sampled again keeps its place in the order, so the bound on the lag holds as before. In PPO mode
        the whole phase is refilled before its first step, while the weights that sampled it are still the newest.
        """
        refilled, waited = 0, 0.0
        pipeline = self.config.pipeline
        begun = pipeline.mode == "ppo" and self.policy.version % pipeline.k > 0
        for _ in range(0 if begun else self.config.objective.refill_rounds):
            flat = [record for record in map(self.buffer.view, sequences) if not record["rewards"].std()]
            if not flat or self.exhausted:
                break
            for record in flat:
                self.curriculum.record(int(record["prompt_index"]), float(record["rewards"].mean()))
            before = {int(record["sequence"]): self.outstanding.pop(int(record["sequence"])) for record in flat}
            tickets = self._draw(before)
            places = [ticket.sequence for ticket, _, _ in tickets]
            self.outstanding = before | self.outstanding  # where no prompt is left the flat group stays
            for record in flat[: len(places)]:
                self.meter.add_discarded(int(record["lengths"].sum()), int(record["prompt_length"]))
            self.buffer.free(places)
            self.buffer.issue_all(tickets)
            waited += self._wait_for(sequences)
            refilled += len(places)
        return refilled, waited

    def _wait_for(self, sequences: range) -> float:
        """Seconds until the whole batch is READY, oldest first and nothing skipped: no bias towards short completions."""
        return wait_until(
            lambda: self.buffer.ready(sequences) == len(sequences),
            f"batch {self.policy.version} (groups {sequences.start} to {sequences.stop - 1})",
            control=self.control,
            role=TRAINER,
            deadline_s=self.config.runtime.wait_timeout_s,
            who=self.generators,
        )

    def _publish(self, version: int) -> None:
        """The order matters: the new version is out before the gate hears of it, and slots are freed only after."""
        self.policy.version = version
        self._send()
        self.gate.publish(version)

    def _send(self) -> None:
        """Put the weights into the channel, and say to the launcher how far the run is."""
        self.control.beat(TRAINER, Stage.PUBLISHING)
        self.channel.publish(self.policy.version, self.weights.pull())
        self.control.put(TRAINER, "loaded_version", self.policy.version)

    def _issue(self) -> None:
        """Hand out every ticket the gate allows, but none beyond the last step, and none when no prompt is left.

        In PPO mode new ones only at the start of a phase; what a resumed run had issued before is issued again at once.
        """
        pipeline = self.config.pipeline
        limit = min(self.gate.issued + self.gate.may_issue(), self.config.training.steps * pipeline.prompts_per_step)
        if pipeline.mode == "ppo" and self.policy.version % pipeline.k:
            limit = min(limit, max(self.outstanding, default=-1) + 1)
        tickets = self._draw(range(self.gate.issued, limit))
        for _ in tickets:
            self.gate.issue()
        self.buffer.issue_all(tickets)

    def _draw(self, sequences: Iterable[int]) -> list[tuple[Ticket, int, int]]:
        """A prompt for each place in the order, the one it had before a resume if there was one; fewer when the
        curriculum ends (what is issued already is still trained)."""
        tickets = []
        for sequence in sequences:
            try:
                prompt, epoch = self.outstanding.get(sequence) or self.curriculum.draw()
            except CurriculumExhausted as ending:
                self.exhausted = str(ending)
                break
            self.outstanding[sequence] = prompt, epoch
            tickets.append((self.gate.ticket(sequence), prompt, epoch))
        return tickets

    def _remember(self, batch: Batch) -> None:
        for prompt, rewards in zip(batch.prompt_index, batch.rewards, strict=True):
            self.curriculum.record(prompt, float(rewards.mean()))

    def _generator_wait(self) -> float:
        """Seconds all generators together were idle since the last call."""
        total = sum(self.control.get(role, "wait_s") for role in self.generators)
        waited, self.generator_wait = total - self.generator_wait, total
        return waited

    def _evaluate_if_due(self) -> None:
        if self.config.evaluation.due(self.policy.version, self.config.training.steps):
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate the newest version, unless that has been done (before a resume)."""
        if self.policy.version > self.evaluator.newest:
            self.meter.pause()
            self.evaluator.run(self.policy.version, self.meter)
            garbage.collect()
            self._generator_wait()  # idle time during an evaluation is not waiting for work
            self.meter.start()

    def _checkpoint(self) -> None:
        """Save the newest state. Raises FloatingPointError instead of saving weights or moments that are not finite."""
        self.control.beat(TRAINER, Stage.CHECKPOINTING)
        broken = self.learner.optimizer.not_finite()
        if broken:
            raise FloatingPointError(
                f"{broken} is not finite at version {self.policy.version}; it was not saved, the last checkpoint stays: "
                "train anew with a lower training.lr"
            )
        clipped = self.learner.clipped_tokens
        clipped.write(self.folder.path / "clipped_tokens.json", self.policy.decode, self.policy.version)
        rows = self.folder.flush_logs()  # what the checkpoint counts on is on the disk before it is
        save_checkpoint(
            self.folder.checkpoints,
            self.policy,
            self.learner.optimizer,
            self.state() | {"rows": rows},
            self.config.runtime.keep_checkpoints,
        )

    def state(self) -> dict[str, Any]:
        """What a resumed run needs beside the weights, as plain JSON. All randomness is derived from the run's seed and
        these counters, so there is no generator state to save."""
        return {
            "version": self.policy.version,
            "prompts": self.prompts_digest,
            "updates": self.learner.optimizer.updates,
            "loss_scaler": self.learner.optimizer.scaler_state(),
            "clipped_tokens": self.learner.clipped_tokens.state(),
            "curriculum": self.curriculum.state(),
            "outstanding": [[sequence, *ticket] for sequence, ticket in sorted(self.outstanding.items())],
            "compute": self.meter.state(),
            "health": self.health.state(),
        }
