"""What happens after a death, without processes: how many are forgiven, and where the dead one's work goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scalerl_mini.runtime.control import Stage
from scalerl_mini.runtime.rollout_buffer import SlotState
from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.supervisor import ChildFailed
from scalerl_mini.training.restarts import Restarts, give_back
from scalerl_mini.training.run_folder import RunFolder
from tests.training.loop import Loop, fake

MakeLoop = Callable[..., Loop]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    with made.lock():
        made.create("", {"state": "running"})
    return made


def death(number: int, *, again: bool = False) -> ChildFailed:
    return ChildFailed("trainer", f"died {number}", Path("absent.log"), again=again)


def test_the_delay_doubles_until_the_run_gets_further(folder: RunFolder) -> None:
    restarts = Restarts(3, folder)
    delays = [restarts.after(death(n), version) for n, version in enumerate((-1, -1, 0, 4, 4, 2, 5))]
    assert delays == [0.5, 1.0, 0.5, 0.5, 1.0, 2.0, 0.5]


def test_one_too_many_without_progress_raises_the_first_cause(folder: RunFolder) -> None:
    restarts, first = Restarts(2, folder), death(1)
    restarts.after(death(0), 3)
    restarts.after(first, 4)
    restarts.after(death(2), 4)
    with pytest.raises(ChildFailed) as caught:
        restarts.after(death(3), 1)  # gone back to a checkpoint, and dead again before it was where it had been
    assert caught.value is first


def test_no_restarts_end_the_run_at_the_first_death(folder: RunFolder) -> None:
    with pytest.raises(ChildFailed, match="died 7"):
        Restarts(0, folder).after(death(7), 3)


def test_a_death_that_would_come_again_ends_the_run_at_once(folder: RunFolder) -> None:
    restarts, last = Restarts(9, folder), death(1, again=True)
    restarts.after(death(0), 3)
    with pytest.raises(ChildFailed) as caught:
        restarts.after(last, 3)
    assert caught.value is last


def test_deaths_are_written_down_also_over_a_resume(folder: RunFolder) -> None:
    Restarts(3, folder).after(death(0), 5)
    Restarts(3, folder).after(death(1), 9)
    deaths = folder.read_record()["deaths"]
    assert [(row["role"], row["cause"], row["version"]) for row in deaths] == [
        ("trainer", "died 0", 5),
        ("trainer", "died 1", 9),
    ]
    assert all(row["time"].startswith("20") for row in deaths)


def replace(loop: Loop, number: int) -> str:
    """Generator `number` dies between two turns, and another takes its place."""
    text = give_back(loop.spec, loop.control, loop.roles[number], 1.0)
    loop.control.start(loop.roles[number])
    loop.generators[number] = loop._generator(number)
    return text


def test_a_run_whose_generators_die_all_the_time_trains_the_same_groups(make_loop: MakeLoop) -> None:
    settings = ("pipeline.k=2", "runtime.generators=2", "training.steps=12", "evaluation.early_every=2")
    whole = make_loop(*settings, folder="whole")
    whole.run()
    loop = make_loop(*settings)
    loop.control.beat("trainer", Stage.WAITING)
    turn, texts = loop.turn, []

    def turn_or_die() -> None:
        if loop.random.random() < 0.15:
            texts.append(replace(loop, loop.random.randrange(2)))
        turn()

    loop.turn = turn_or_die  # type: ignore[method-assign]
    assert loop.run() is None
    assert sum("0 groups" not in text for text in texts) > 3
    assert max(row["lag_max"] for row in loop.steps) <= 2
    for (_, batch), (_, undisturbed) in zip(loop.batches, whole.batches, strict=True):
        assert batch.prompt_index == undisturbed.prompt_index
        np.testing.assert_array_equal(batch.tokens, undisturbed.tokens)
    assert [row["generated_tokens"] for row in loop.steps] == [row["generated_tokens"] for row in whole.steps]
    for name in ("step", "pass_rate", "mean_length"):
        assert [row[name] for row in loop.evals] == [row[name] for row in whole.evals]


def test_an_evaluation_whose_only_generator_died_is_done_by_the_next(make_loop: MakeLoop) -> None:
    loop = make_loop("evaluation.trainer_helps=false")
    loop.control.beat("trainer", Stage.WAITING)
    loop.trainer._send()
    generator, board = loop.generators[0], loop.trainer.evaluator.board
    board.open(0)
    steps = 0

    def die() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            raise SystemExit

    fake(generator.evaluation.engine).before_step = die
    with pytest.raises(SystemExit):
        generator.turn()
    held = int(((board.results["owner"] == 1) & ~board.results["done"]).sum())
    assert 0 < held < board.prompts
    assert replace(loop, 0) == f"0 groups and {held} held-out prompts issued again"
    loop.generators[0].turn()
    assert board.done == board.prompts


def test_nothing_is_given_back_before_the_trainer_has_made_the_segments(make_loop: MakeLoop) -> None:
    loop = make_loop()
    assert loop.control.stage("trainer") == Stage.STARTING
    assert give_back(loop.spec, loop.control, "generator-0", 1.0) == "it held nothing"


def test_a_lock_that_a_frozen_trainer_holds_does_not_freeze_the_launcher(make_loop: MakeLoop) -> None:
    loop = make_loop()
    loop.control.beat("trainer", Stage.WAITING)
    with Segment.attach(loop.spec.segment_path("rollouts")).lock(), pytest.raises(TimeoutError, match="was locked for"):
        give_back(loop.spec, loop.control, "generator-0", 0.05)
    loop.trainer._issue()
    assert loop.generators[0].buffer.claim(0, 0) is not None
    assert give_back(loop.spec, loop.control, "generator-0", 0.05) == "1 groups issued again"
    assert (loop.trainer.buffer._slots["state"] != SlotState.CLAIMED).all()
