"""Stopping and going on: no step twice, compute goes on, and in synchronous mode nobody can tell the difference."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scalerl_mini.rollout.curriculum import Curriculum
from scalerl_mini.training import compute, optimizer
from scalerl_mini.training.batch import Batch
from scalerl_mini.training.checkpoint_names import checkpoint_name, list_checkpoints, version_of
from scalerl_mini.training.restarts import give_back
from scalerl_mini.training.resuming import go_on, newest_checkpoint
from tests.fakes import FakeClock
from tests.training.loop import Loop

MakeLoop = Callable[..., Loop]


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what a clock says, and without how many groups lay ready when somebody looked."""
    clock = ("wall_seconds", "device_hours", "buffered_groups")
    return [{k: v for k, v in row.items() if k not in clock and not k.endswith("_s")} for row in rows]


def stop_after(loop: Loop, step: int) -> None:
    """Ctrl-C while the trainer is in step `step` + 1."""

    def stop() -> None:
        if loop.trainer.policy.version == step:
            loop.control.request_stop("interrupt")

    loop.after_step = stop


def kill_after(loop: Loop, step: int) -> None:
    """SIGKILL after step `step`: no checkpoint, nothing is tidied up."""

    def kill() -> None:
        if loop.trainer.policy.version == step:
            raise SystemExit

    loop.after_step = kill


SYNCHRONOUS = ("pipeline.k=0", "training.steps=9", "runtime.checkpoint_every=4", "evaluation.early_every=2")


@pytest.mark.parametrize(
    ("mode", "k", "stop"),
    [("pipeline", 0, 1), ("pipeline", 0, 2), ("pipeline", 0, 4), ("pipeline", 0, 8), ("ppo", 1, 5), ("ppo", 3, 6)],
)
def test_a_stopped_synchronous_run_ends_bit_identical(make_loop: MakeLoop, mode: str, k: int, stop: int) -> None:
    """PPO: stopped between two phases; within one, what was not yet trained would be sampled anew by newer weights."""
    settings = (*SYNCHRONOUS, f"pipeline.mode={mode}", f"pipeline.k={k}")
    whole = make_loop(*settings, folder="whole")
    whole.run()
    first = make_loop(*settings)
    stop_after(first, stop)
    assert first.run() == "the run is stopping (interrupt)"
    assert version_of(newest_checkpoint(first.folder.path)) == stop
    second = make_loop(*settings, resume=True)
    assert second.run() is None
    assert timeless(second.steps) == timeless(whole.steps)
    assert timeless(second.evals) == timeless(whole.evals)
    for name, tensor in whole.weights.items():
        np.testing.assert_array_equal(second.weights[name], tensor)


def test_a_stopped_fp16_run_keeps_its_loss_scale_and_its_tally(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale begins so high that the first steps overflow; ratios leave the narrow clip at once."""
    monkeypatch.setattr(optimizer, "FIRST_LOSS_SCALE", 2.0**20)
    settings = (
        *SYNCHRONOUS,
        "model.dtype=float16",
        "objective.loss=grpo",
        "objective.constants.eps=0.001",
        "training.lr=0.1",
    )
    settings = (*settings, "pipeline.mode=ppo", "pipeline.k=3")
    whole = make_loop(*settings, folder="whole")
    whole.run()
    assert whole.steps[0]["loss_scale"] == 2.0**20
    assert 0 < whole.steps[-1]["overflows"] < 9
    assert whole.steps[-1]["skipped_steps"] == 0
    skipped = [row["trained_tokens"] for row in whole.steps if row["grad_norm"] is None]
    assert skipped == [0] * whole.steps[-1]["overflows"]
    first = make_loop(*settings)
    stop_after(first, 6)
    first.run()
    second = make_loop(*settings, resume=True)
    assert second.run() is None
    assert timeless(second.steps) == timeless(whole.steps)
    tallies = [(loop.folder.path / "clipped_tokens.json").read_text() for loop in (whole, second)]
    assert tallies[0] == tallies[1]
    assert json.loads(tallies[0])["tokens"]


def test_a_killed_synchronous_run_ends_bit_identical(make_loop: MakeLoop) -> None:
    """Killed after step 7, it goes on from the checkpoint of step 4; steps 5 to 7 are done again, alike."""
    whole = make_loop(*SYNCHRONOUS, folder="whole")
    whole.run()
    first = make_loop(*SYNCHRONOUS)
    kill_after(first, 7)
    with pytest.raises(SystemExit):
        first.run()
    assert len(first.steps) == 7
    go_on(first.folder, first.config)
    second = make_loop(*SYNCHRONOUS, resume=True)
    assert second.run() is None
    assert timeless(second.steps) == timeless(whole.steps)
    assert timeless(second.evals) == timeless(whole.evals)
    for name, tensor in whole.weights.items():
        np.testing.assert_array_equal(second.weights[name], tensor)


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_stopped_asynchronous_run_trains_every_prompt_in_its_turn(make_loop: MakeLoop, stop: int) -> None:
    settings = ("pipeline.k=3", "training.steps=9", "runtime.generators=2")
    whole = make_loop(*settings, folder="whole")
    whole.run()
    first = make_loop(*settings)
    stop_after(first, stop)
    first.run()
    second = make_loop(*settings, resume=True)
    second.run()
    assert [row["step"] for row in second.steps] == list(range(1, 10))
    assert [row["step"] for row in second.evals] == [row["step"] for row in whole.evals]
    prompts = [batch.prompt_index for _, batch in first.batches + second.batches]
    assert prompts == [batch.prompt_index for _, batch in whole.batches]
    assert all(row["lag_max"] <= 3 for row in second.steps)


def test_an_asynchronous_run_killed_again_and_again_trains_what_the_curriculum_dictates(make_loop: MakeLoop) -> None:
    """Five epochs of 12 prompts; after each death the steps since the checkpoint are done again, on the same prompts."""
    settings = ("pipeline.k=3", "training.steps=20", "runtime.generators=2", "runtime.checkpoint_every=3")
    last_done: dict[int, Batch] = {}
    for number, death in enumerate((4, 5, 10, 16, None)):
        loop = make_loop(*settings, resume=number > 0)
        if death is None:
            loop.run()
        else:
            kill_after(loop, death)
            with pytest.raises(SystemExit):
                loop.run()
            go_on(loop.folder, loop.config)
        last_done |= dict(loop.batches)
    assert sorted(last_done) == list(range(20))
    trained = [prompt for version in range(20) for prompt in last_done[version].prompt_index]
    curriculum = Curriculum(12, loop.config.seed, None)
    assert trained == [curriculum.draw()[0] for _ in range(60)]
    assert all(trained.count(prompt) == 5 for prompt in range(12))
    tokens = [row["generated_tokens"] for row in loop.steps]
    assert tokens == list(itertools.accumulate(int(last_done[version].lengths.sum()) for version in range(20)))


def test_compute_goes_on_where_it_stopped(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(compute, "time", SimpleNamespace(monotonic=clock.monotonic))

    def take_a_second_each_step(loop: Loop) -> None:
        update = loop.trainer.learner.update

        def slow(batch: Any) -> Any:
            clock.now += 1.0
            return update(batch)

        monkeypatch.setattr(loop.trainer.learner, "update", slow)

    first = make_loop()
    take_a_second_each_step(first)
    stop_after(first, 4)
    first.run()
    clock.now += 5000.0  # the night between
    second = make_loop(resume=True)
    take_a_second_each_step(second)
    second.run()
    assert [row["wall_seconds"] for row in second.steps] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    tokens = [row["generated_tokens"] for row in second.steps]
    assert all(later > earlier for earlier, later in itertools.pairwise(tokens))
    assert second.evals[-1]["wall_seconds"] == 6.0


def test_a_run_stopped_before_its_first_step_can_go_on(make_loop: MakeLoop) -> None:
    first = make_loop()
    first.control.request_stop("interrupt")
    assert first.run(eager=False) == "the run is stopping (interrupt)"
    assert [path.name for path in list_checkpoints(first.folder.checkpoints)] == [checkpoint_name(0)]
    second = make_loop(resume=True)
    assert second.run() is None
    assert [row["step"] for row in second.evals] == [0, 3, 6]


def test_a_finished_run_can_be_made_longer(make_loop: MakeLoop) -> None:
    make_loop("training.steps=4").run()
    longer = make_loop("training.steps=6", resume=True)
    assert longer.run() is None
    assert [row["step"] for row in longer.steps] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in longer.evals] == [0, 3, 4, 6]


def test_resuming_a_finished_run_changes_nothing(make_loop: MakeLoop) -> None:
    first = make_loop()
    first.run()
    before = first.steps, first.evals
    second = make_loop(resume=True)
    assert second.run() is None
    assert (second.steps, second.evals) == before


def test_a_generator_can_start_when_the_checkpoint_of_the_resume_is_gone(make_loop: MakeLoop) -> None:
    """Newer ones have taken its place by the time the generator that died is started again."""
    settings = ("training.steps=9", "runtime.checkpoint_every=2", "runtime.keep_checkpoints=1")
    first = make_loop(*settings)
    stop_after(first, 4)
    first.run()
    second = make_loop(*settings, resume=True)
    resumed = second.spec.resume

    assert resumed is not None

    def replace() -> None:
        if second.trainer.policy.version == 8:
            assert not resumed.exists()
            give_back(second.spec, second.control, "generator-0", 1.0)
            second.generators = [second._generator(0)]

    second.after_step = replace
    assert second.run() is None
    assert [row["step"] for row in second.steps] == list(range(1, 10))
