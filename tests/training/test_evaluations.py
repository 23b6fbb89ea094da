"""Evaluations within the loop: of one version, each sample once, whoever is late, and no training compute."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from scalerl_mini.rollout.engines import Finished
from scalerl_mini.training import compute
from scalerl_mini.training.batch import Batch
from tests.fakes import FakeClock
from tests.training.loop import Loop, fake

MakeLoop = Callable[..., Loop]


def test_evaluations_are_of_one_version(make_loop: MakeLoop) -> None:
    loop = make_loop("pipeline.k=3", "evaluation.early_every=2", "runtime.generators=2")
    workers = [loop.trainer.evaluator.worker, *(generator.evaluation for generator in loop.generators)]
    graded: list[tuple[int, tuple[int, int], np.ndarray]] = []
    for worker in workers:
        assert worker is not None

        def keep(finished: Finished) -> None:
            graded.append((loop.trainer.evaluator.board.version, finished.key, finished.versions))

        fake(worker.engine).spoil = keep
    loop.run()
    assert [row["policy_version"] for row in loop.evals] == [0, 2, 4, 6]
    for version in (0, 2, 4, 6):
        keys = sorted(key for at, key, _ in graded if at == version)
        assert keys == [(prompt, sample) for prompt in range(5) for sample in range(2)], "each sample exactly once"
    assert all((versions == version).all() for version, _, versions in graded)
    trainer, *generators = (len(fake(worker.engine).sampled) for worker in workers if worker)
    assert trainer > 0, "the trainer did not help"
    assert max(generators) > 0, "the trainer had to do it alone"


def test_the_same_held_out_samples_every_time(make_loop: MakeLoop) -> None:
    """Seeds of an evaluation do not depend on the version: the fake policy never changes its mind, so neither does
    the pass rate."""
    loop = make_loop("evaluation.trainer_helps=false")
    loop.run()
    assert loop.trainer.evaluator.worker is None
    assert len({row["pass_rate"] for row in loop.evals}) == 1
    assert len({row["mean_length"] for row in loop.evals}) == 1


DOWNSTREAM = (
    "evaluation.downstream.prompts=4",
    "evaluation.downstream.name=tests.fakes:FakeTask",
    "evaluation.downstream.options={held_out=6, rule='half'}",
    "evaluation.downstream.max_new_tokens=3",
)


def test_a_downstream_task_has_keys_of_its_own_and_changes_nothing_else(make_loop: MakeLoop) -> None:
    plain, both = make_loop(folder="plain"), make_loop(*DOWNSTREAM, folder="both")
    plain.run()
    both.run()
    for without, row in zip(plain.evals, both.evals, strict=True):
        own = {key: value for key, value in row.items() if key.startswith("downstream_")}
        clock = ("wall_seconds", "device_hours")
        rest = {key: value for key, value in row.items() if key not in own and key not in clock}
        assert rest == {key: value for key, value in without.items() if key not in clock}
        assert (own["downstream_pass_rate"], own["downstream_pass_rate_stderr"]) == (0.5, 0.0)
        assert (own["downstream_prompts"], own["downstream_samples_per_prompt"]) == (4, 2)
        assert own["downstream_pass_rate_by_level"] == {"level 0": 0.5, "level 1": 0.5}
        assert own["downstream_mean_length"] <= 3 < row["mean_length"]
    assert plain.trainer.prompts_digest != both.trainer.prompts_digest  # a resumed run must ask the same


def test_each_set_has_its_own_seeds_and_grader(make_loop: MakeLoop) -> None:
    """The same task as both: the same prompts get other samples, since seeds depend on the role."""
    same = ("evaluation.downstream.prompts=5", "evaluation.downstream.name=tests.fakes:FakeTask")
    loop = make_loop(*same)
    lengths = []
    for worker in (loop.trainer.evaluator.worker, loop.generators[0].evaluation):
        assert worker is not None
        fake(worker.engine).spoil = lambda finished: lengths.append((finished.key, len(finished.tokens)))
    loop.run()
    first = dict(lengths)
    assert set(first) == {(prompt, sample) for prompt in range(10) for sample in range(2)}
    held_out, downstream = (
        [first[prompt, s] for prompt in part for s in range(2)] for part in (range(5), range(5, 10))
    )
    assert held_out != downstream
    assert "downstream_pass_rate" in loop.evals[-1]


def test_a_generator_that_slept_through_an_evaluation_goes_on(make_loop: MakeLoop) -> None:
    """The trainer did the whole evaluation and a step more; the late generator finds nothing to do and no error."""
    loop = make_loop("pipeline.k=2", "evaluation.early_every=1", "training.steps=5")
    assert loop.run(eager=False) is None  # generators run only while the trainer waits for a batch
    for generator in loop.generators:
        assert not fake(generator.evaluation.engine).sampled
    assert [row["policy_version"] for row in loop.evals] == [0, 1, 2, 3, 4, 5]


def test_a_late_generator_cannot_mix_its_version_into_the_next_evaluation(make_loop: MakeLoop) -> None:
    """It still holds version 0 and is about to take more prompts when the board already asks for version 3."""
    loop = make_loop()
    loop.trainer.channel.publish(0, loop.trainer.weights.pull())
    generator, board = loop.generators[0], loop.trainer.evaluator.board
    generator.load()
    board.open(0)
    fake(generator.evaluation.engine).before_step = lambda: board.open(3) if board.version == 0 else None
    generator.evaluation.share()
    assert board.version == 3
    assert board.take(99, 3, 0) == list(range(5))  # all of the new evaluation is still there to be taken


def test_evaluation_time_is_not_compute(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(compute, "time", SimpleNamespace(monotonic=clock.monotonic))
    loop = make_loop("evaluation.early_every=2")

    def evaluation_takes_long() -> None:
        clock.now += 1000.0

    update = loop.trainer.learner.update

    def update_takes_a_second(batch: Batch) -> object:
        clock.now += 1.0
        return update(batch)

    for worker in (loop.trainer.evaluator.worker, loop.generators[0].evaluation):
        assert worker is not None
        fake(worker.engine).before_step = evaluation_takes_long
    monkeypatch.setattr(loop.trainer.learner, "update", update_takes_a_second)
    loop.run(eager=False)
    assert clock.now > 1000
    assert [row["wall_seconds"] for row in loop.evals] == [0.0, 2.0, 4.0, 6.0]
    assert [row["device_hours"] for row in loop.evals] == pytest.approx([2 * s / 3600 for s in (0.0, 2.0, 4.0, 6.0)])
