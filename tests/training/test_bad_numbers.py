"""Numbers that are not finite: a token is dropped, a step is skipped, a broken model ends the run and is never saved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from scalerl_mini.rollout.engines import Finished
from scalerl_mini.training.checkpoint_names import list_checkpoints
from tests.training.loop import Loop, fake

MakeLoop = Callable[..., Loop]


def bad_loss(loop: Loop, *versions: int) -> None:
    """One log-probability of the batches trained at `versions` is NaN."""
    score = loop.trainer.learner._score

    def spoilt(policy: Any, micro: Any) -> Any:
        logprobs, entropy = score(policy, micro)
        if policy.version in versions:
            logprobs = torch.where(micro.mask & (micro.mask.cumsum(1) == 1), math.nan, logprobs)
        return logprobs, entropy

    loop.trainer.learner._score = spoilt  # type: ignore[method-assign]


def bad_gradient(loop: Loop, *versions: int) -> None:
    """The loss is sound, one number of the gradient is not."""
    optimizer = loop.trainer.learner.optimizer
    collect = optimizer.collect

    def spoilt() -> None:
        collect()
        if loop.trainer.policy.version in versions:
            next(iter(optimizer.masters.values())).grad.view(-1)[0] = math.inf

    optimizer.collect = spoilt  # type: ignore[method-assign]


@pytest.mark.parametrize(("spoil", "message"), [(bad_loss, "the loss is nan"), (bad_gradient, "norm is inf")])
def test_a_bad_step_is_skipped_and_the_run_goes_on(make_loop: MakeLoop, spoil: Callable, message: str) -> None:
    loop = make_loop("pipeline.k=0")
    spoil(loop, 2)
    weights = [loop.weights]
    loop.after_step = lambda: weights.append(loop.weights)
    assert loop.run() is None
    assert [row["step"] for row in loop.steps] == [1, 2, 3, 4, 5, 6]
    assert [row["skipped"] is not None for row in loop.steps] == [False, False, True, False, False, False]
    assert message in loop.steps[2]["skipped"]
    assert [row["skipped_steps"] for row in loop.steps] == [0, 0, 1, 1, 1, 1]
    changed = [any((new[n] != old[n]).any() for n in new) for old, new in itertools.pairwise(weights)]
    assert changed == [True, True, False, True, True, True]
    assert loop.trainer.learner.optimizer.updates == 5
    assert loop.trainer.learner.optimizer.not_finite() is None
    assert loop.steps[2]["trained_tokens"] == loop.steps[1]["trained_tokens"]
    assert loop.steps[2]["generated_tokens"] > loop.steps[1]["generated_tokens"]


def break_weights(loop: Loop, after: int) -> None:
    """A weight becomes NaN once `after` steps are done."""

    def spoil() -> None:
        if loop.trainer.policy.version == after:
            with torch.no_grad():
                loop.trainer.policy.body.norm.weight[0] = math.nan

    loop.after_step = spoil


@pytest.mark.parametrize("allowed", [0, 2])
def test_too_many_bad_steps_fail_the_run_and_leave_the_last_checkpoint(make_loop: MakeLoop, allowed: int) -> None:
    loop = make_loop(f"training.bad_steps_allowed={allowed}", "runtime.checkpoint_every=1", "training.steps=9")
    break_weights(loop, after=2)
    with pytest.raises(
        FloatingPointError, match=rf"the loss is nan at version {2 + allowed}.*the last checkpoint stays"
    ):
        loop.run()
    assert [row["step"] for row in loop.steps if row["skipped"]] == list(range(3, 3 + allowed))
    assert [path.name for path in list_checkpoints(loop.folder.checkpoints)] == ["step-00002", "step-00001"]
    again = make_loop("training.steps=4", resume=True)
    assert again.run() is None
    assert again.trainer.learner.optimizer.not_finite() is None


def test_a_good_step_in_between_starts_the_count_anew(make_loop: MakeLoop) -> None:
    loop = make_loop("training.bad_steps_allowed=1", "training.steps=8")
    bad_loss(loop, 1, 3, 5)
    assert loop.run() is None
    assert loop.steps[-1]["skipped_steps"] == 3


def test_the_counts_survive_a_resume(make_loop: MakeLoop) -> None:
    loop = make_loop("training.bad_steps_allowed=3", "training.steps=5")
    bad_loss(loop, 3, 4)
    assert loop.run() is None
    again = make_loop("training.bad_steps_allowed=3", "training.steps=9", resume=True)
    bad_loss(again, *range(5, 9))
    with pytest.raises(FloatingPointError, match="at version 6, and so it went in the 3 steps before"):
        again.run()
    assert again.steps[-1]["skipped_steps"] == 3


def test_broken_weights_are_not_saved_at_the_end(make_loop: MakeLoop) -> None:
    """The last step breaks the weights: no further loss would show it."""
    loop = make_loop("training.steps=4", "runtime.checkpoint_every=3")
    break_weights(loop, after=4)
    with pytest.raises(FloatingPointError, match=r"model.norm.weight is not finite at version 4; it was not saved"):
        loop.run()
    assert [path.name for path in list_checkpoints(loop.folder.checkpoints)] == ["step-00003"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_batches_without_one_usable_token_end_the_run(make_loop: MakeLoop, bad: float) -> None:
    """What a generator with broken weights samples: every log-probability is NaN, so there is no loss to look at."""
    loop = make_loop("training.bad_steps_allowed=1")

    def spoil(finished: Finished) -> None:
        finished.logprobs[:] = bad

    fake(loop.generators[0].engine).spoil = spoil
    with pytest.raises(FloatingPointError, match="no behaviour log-probability of the batch is finite at version 1"):
        loop.run()
    assert [row["dropped_tokens"] > 0 for row in loop.steps] == [True]
    assert not list_checkpoints(loop.folder.checkpoints)
