"""Invariant 1 with real processes: gate, buffer and channel together, generators killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.context import SpawnProcess

import numpy as np
import pytest

from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.gate import StalenessGate
from scalerl_mini.runtime.rollout_buffer import BufferShape, RolloutBuffer, SlotState
from scalerl_mini.runtime.segment_names import run_prefix, unlink_all
from scalerl_mini.runtime.waiting import wait_until
from scalerl_mini.runtime.weight_channel import WeightChannel
from tests.runtime.processes import WEIGHTS, constant_weights, generate
from tests.runtime.support import spawned

STEPS = 60
KILLS = 3


class Trainer:
    """The trainer's cycle of runtime/__init__.py, with a check in place of an optimiser."""

    def __init__(self, prefix: str, prompts: int, k: int) -> None:
        self.gate = StalenessGate(prompts, k)
        self.control = Control.create(prefix + ".control", ["trainer", "generator-0", "generator-1"])
        self.buffer = RolloutBuffer.create(prefix + ".rollouts", BufferShape(self.gate.capacity, 2, 1, 8))
        self.channel = WeightChannel.create(prefix + ".weights", WEIGHTS)
        self.lags: list[int] = []
        self.channel.publish(0, constant_weights(0))
        self.issue()

    def issue(self) -> None:
        for _ in range(self.gate.may_issue()):
            self.buffer.issue(self.gate.issue(), prompt_index=7 * self.gate.issued, epoch=0)

    def batch_ready(self) -> bool:
        return self.buffer.ready(self.gate.batch(self.gate.version)) == self.gate.prompts_per_step

    def step(self) -> None:
        version = self.gate.version
        batch = self.gate.batch(version)
        wait_until(
            self.batch_ready,
            f"batch {version}",
            control=self.control,
            role="trainer",
            deadline_s=120,
            who=["generator-0", "generator-1"],
        )
        for sequence in batch:
            record = self.buffer.view(sequence)
            assert (record["tokens"] == 7 * (sequence + 1) + np.arange(8)).all()
            assert (np.diff(record["versions"]) >= 0).all()
            self.lags += [version - int(record["versions"].min()), version - int(record["versions"].max())]
        self.channel.publish(version + 1, constant_weights(version + 1))
        self.gate.publish(version + 1)
        self.buffer.free(batch)
        self.issue()


class Generators:
    """Two generator processes, of which one can be killed while it holds a group."""

    def __init__(self, trainer: Trainer, stack: contextlib.ExitStack) -> None:
        self.trainer, self.stack, self.started = trainer, stack, 0
        self.processes = [self._start(owner) for owner in range(2)]

    def _start(self, owner: int) -> SpawnProcess:
        trainer, self.started = self.trainer, self.started + 1
        paths = (trainer.control.path, trainer.buffer.path, trainer.channel.path)
        return self.stack.enter_context(spawned(generate, f"generator-{owner}", owner, *paths, self.started))

    def kill_in_mid_group(self) -> bool:
        """Kill a generator that holds a group, issue the group again and start another; False when none holds one."""
        if not (holders := self._holders()):
            return False
        process = self.processes[holders[0]]
        os.kill(process.pid or 0, signal.SIGSTOP)
        if holders[0] not in self._holders():  # It was faster.
            os.kill(process.pid or 0, signal.SIGCONT)
            return False
        process.kill()
        process.join()
        assert len(self.trainer.buffer.reissue(holders[0])) == 1
        self.processes[holders[0]] = self._start(holders[0])
        return True

    def _holders(self) -> list[int]:
        slots = self.trainer.buffer._slots
        return slots["owner"][slots["state"] == SlotState.CLAIMED].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("prompts", "k"), [(3, 2), (2, 0), (1, 8)])
def test_lag_stays_within_k_while_generators_die_in_mid_group(prefix: str, prompts: int, k: int) -> None:
    trainer, killed = Trainer(prefix, prompts, k), 0
    with contextlib.ExitStack() as stack:
        generators = Generators(trainer, stack)
        while killed < KILLS or trainer.gate.version < STEPS:
            while killed < KILLS and trainer.gate.version >= 10 * (killed + 1) and not trainer.batch_ready():
                killed += generators.kill_in_mid_group()
            trainer.step()
        trainer.control.request_stop("finished")
    assert 0 <= min(trainer.lags) <= max(trainer.lags) <= k
    assert max(trainer.lags) == k, "generators were never late, the test shows nothing"
    assert len(trainer.lags) == 2 * prompts * trainer.gate.version


def test_two_runs_at_once_do_not_meet() -> None:
    prefixes = [run_prefix(), run_prefix()]
    try:
        one, two = (Trainer(prefix, 1, 0) for prefix in prefixes)
        record = one.buffer.claim(0, 0)
        assert record is not None
        one.buffer.commit(0)
        assert one.buffer.ready([0]) == 1
        assert two.buffer.ready([0]) == 0
        one.control.request_stop("failure")
        assert not two.control.stopping
    finally:
        for prefix in prefixes:
            unlink_all(prefix)
