"""Whole runs whose grading code fails and hangs: they go on, and the failures are counted apart from wrong answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scalerl_mini.policy import Policy
from scalerl_mini.training.batch import Batch
from tests.training.loop import Loop

MakeLoop = Callable[..., Loop]
MOODY = ("task.name=tests.rollout.hostile_task:Moody", "task.grade_timeout_s=1.0", "evaluation.trainer_helps=false")


def patient(loop: Loop) -> Loop:
    """Grades come from other processes, so turns of the generator must be allowed to take time."""
    loop.most_turns = 10**9
    return loop


def first_digits(policy: Policy, batch: Batch) -> np.ndarray:
    """First digit of every completion, [P, G]."""
    return np.array([policy.decode(row[:1]) for row in batch.tokens]).reshape(batch.rewards.shape)


def test_failures_and_time_outs_are_counted_and_the_run_goes_on(make_loop: MakeLoop) -> None:
    loop = patient(make_loop(*MOODY, "training.steps=3"))
    assert loop.run(eager=False) is None
    assert len(loop.batches) == 3
    for row, (_, batch) in zip(loop.steps, loop.batches, strict=True):
        digits = first_digits(loop.trainer.policy, batch)
        assert row["grading_errors"] == (digits == "9").sum()
        assert row["grading_timeouts"] == (digits == "8").sum()
        np.testing.assert_array_equal(batch.rewards, np.isin(digits, list("0246")))
    assert sum(row["grading_errors"] for row in loop.steps) > 0
    assert sum(row["grading_timeouts"] for row in loop.steps) > 0
    for row in loop.evals:
        assert row["grading_errors"] + row["grading_timeouts"] <= (1 - row["pass_rate"]) * 10
    assert sum(row["grading_errors"] + row["grading_timeouts"] for row in loop.evals) > 0


def test_a_grader_that_always_fails_ends_the_run_with_the_reason(make_loop: MakeLoop) -> None:
    loop = patient(make_loop(*MOODY, 'task.options={fault="raise"}', "training.flat_steps_allowed=2"))
    reason = loop.run(eager=False)
    assert reason == "for 2 steps nothing could be learned, the grader failed 6 times of 6; see logs/ for why"
    assert [row["grading_errors"] for row in loop.steps] == [6, 6]
    assert loop.evals[-1]["step"] == 2
    assert loop.evals[-1]["grading_errors"] == 10
