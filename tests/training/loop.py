"""A trainer and its generators in one process and one thread, with fake engines: every interleaving can be played.

Wherever the trainer would wait, generators take turns chosen by a seeded random number; with `eager` they also do so
before and after every act of the trainer that they could see (publish, free, issue, an optimiser step, evaluation).
Nothing of the trainer, the generators or the shared memory is replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.rollout import generator as generator_module
from scalerl_mini.rollout.generator import Generator
from scalerl_mini.runtime import run_prefix, unlink_all
from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.rollout_buffer import SlotState
from scalerl_mini.runtime.waiting import Stopped
from scalerl_mini.training import evaluator as evaluator_module
from scalerl_mini.training import processes
from scalerl_mini.training import trainer as trainer_module
from scalerl_mini.training.batch import Batch
from scalerl_mini.training.resuming import newest_checkpoint
from scalerl_mini.training.row_log import read_rows
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.run_spec import RunSpec, generator_roles
from tests.fakes import FAKE_RUN, FakeEngine

MOST_TURNS = 5000
SMALL = (
    *FAKE_RUN,
    "training.steps=6",
    "evaluation.prompts=5",
    "evaluation.samples=2",
    "evaluation.early_every=3",
    "training.lr=0.01",
)


class Loop:
    """One run, or the continuation of one, ready to be driven."""

    def __init__(self, folder: Path, model: Path, settings: tuple[str, ...] = (), *, resume: bool = False) -> None:
        self.config: Config = load_config(None, (*SMALL, *settings))
        self.folder = RunFolder(folder)
        with self.folder.lock():
            if not resume:
                self.folder.create(dump_toml(self.config), {})
        self.prefix = run_prefix()
        self.roles = generator_roles(self.config)
        self.control = Control.create(f"{self.prefix}.control", ["trainer", *self.roles])
        checkpoint = newest_checkpoint(folder) if resume else None
        self.spec = RunSpec(self.config, folder, self.control.path, self.prefix, model, checkpoint)
        try:
            self.trainer = processes.build_trainer(self.spec, processes.Side.build(self.spec, "trainer"), self.control)
        except BaseException:
            self.close()
            raise
        self.generators = [self._generator(number) for number in range(len(self.roles))]
        self.random = random.Random(0)
        self.batches: list[tuple[int, Batch]] = []
        self.after_step: Callable[[], None] = lambda: None
        self.most_turns = MOST_TURNS

    def _generator(self, number: int) -> Generator:
        side = processes.Side.build(self.spec, "generator", number)
        return processes.build_generator(self.spec, number, side, self.control, side.engine())

    def turn(self) -> None:
        """One turn of a generator, which one is left to chance."""
        self.random.choice(self.generators).turn()

    def some_turns(self) -> None:
        """Nought to five turns."""
        for _ in range(self.random.randrange(6)):
            self.turn()

    def wait_until(self, predicate: Callable[[], bool], what: str, **_: Any) -> float:
        """In the place of `runtime.waiting.wait_until`: the others run until the predicate holds."""
        for _ in range(self.most_turns):
            if self.control.stopping:
                raise Stopped(str(self.control.stop_reason))
            if predicate():
                return 0.0
            self.turn()
        raise AssertionError(f"waited for ever for {what}")

    def interleave(self, owner: Any, name: str) -> None:
        """Let generators run just before and just after a method of the trainer's side."""
        act = getattr(owner, name)

        def act_between_turns(*args: Any, **kwargs: Any) -> Any:
            self.some_turns()
            result = act(*args, **kwargs)
            self.some_turns()
            return result

        setattr(owner, name, act_between_turns)

    def run(self, *, eager: bool = True) -> str | None:
        """`Trainer.run` with everything around it; batches are kept, `after_step` is called after each step."""
        trainer = self.trainer
        if eager:
            for owner, name in (
                (trainer.channel, "publish"),
                (trainer.gate, "publish"),
                (trainer.buffer, "free"),
                (trainer.buffer, "issue_all"),
                (trainer.learner, "update"),
                (trainer.evaluator.board, "open"),
            ):
                self.interleave(owner, name)
            if trainer.evaluator.worker:
                fake(trainer.evaluator.worker.engine).before_step = self.some_turns
        with pytest.MonkeyPatch.context() as patch:
            assemble = trainer_module.assemble
            step = trainer._step

            def keep_batch(*args: Any) -> Batch:
                batch = assemble(*args)
                self.batches.append((trainer.policy.version, batch))
                return batch

            def checked_step() -> None:
                step()
                self.after_step()

            patch.setattr(generator_module, "IDLE_S", 0.0)
            patch.setattr(trainer_module, "wait_until", self.wait_until)
            patch.setattr(evaluator_module, "wait_until", self.wait_until)
            patch.setattr(trainer_module, "assemble", keep_batch)
            patch.setattr(trainer, "_step", checked_step)
            return trainer.run()

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Rows of steps.jsonl."""
        return read_rows(self.folder.steps)

    @property
    def evals(self) -> list[dict[str, Any]]:
        """Rows of evals.jsonl."""
        return read_rows(self.folder.evals)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Copies of the trainer's parameters."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self.trainer.policy.named_tensors().items()}

    @property
    def generated(self) -> int:
        """Tokens of all completions that generators have finished."""
        return sum(int(self.control.get(role, "generated_tokens")) for role in self.roles)

    @property
    def buffered(self) -> int:
        """Tokens of finished completions that no batch has taken yet."""
        slots = self.trainer.buffer._slots
        return int(slots["lengths"][slots["state"] != SlotState.FREE].sum())

    def close(self) -> None:
        unlink_all(self.prefix, self.folder.path)


def fake(engine: Any) -> FakeEngine:
    """The engine as what it is in these tests."""
    assert isinstance(engine, FakeEngine)
    return engine
