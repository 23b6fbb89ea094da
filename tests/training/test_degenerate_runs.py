"""Runs that teach nothing: counted, ended in order, and the reason says what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scalerl_mini.training.checkpoint_names import list_checkpoints
from tests.training.loop import Loop

MakeLoop = Callable[..., Loop]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("always", "every completion was right: there is nothing left to learn; give the task harder prompts"),
        ("never", "every completion was wrong: nothing can be learned; give easier prompts"),
        ("half", "all rewards within each group were equal: nothing can be learned"),
    ],
)
@pytest.mark.parametrize("filtered", ["true", "false"])
def test_flat_steps_in_a_row_end_the_run(make_loop: MakeLoop, rule: str, message: str, filtered: str) -> None:
    loop = make_loop(
        f'task.options={{rule="{rule}"}}', "training.flat_steps_allowed=4", "training.steps=50",
        f"objective.zero_variance_filter={filtered}",
    )  # fmt: skip
    reason = loop.run()
    assert reason is not None
    assert reason.startswith(f"for 4 steps {message}")
    assert [row["step"] for row in loop.steps] == [1, 2, 3, 4]
    assert loop.evals[-1]["step"] == 4  # the last version is evaluated and saved, as at any end
    assert [path.name for path in list_checkpoints(loop.folder.checkpoints)] == ["step-00004"]


def test_a_step_that_teaches_starts_the_count_anew(make_loop: MakeLoop) -> None:
    """Rewards by parity: now and then all groups of a batch are flat, but never so often in a row."""
    loop = make_loop("pipeline.prompts_per_step=1", "training.flat_steps_allowed=6", "training.steps=30")
    assert loop.run() is None
    flat = [row["effective_groups"] == 0 for row in loop.steps]
    assert sum(flat) > 6


def test_the_count_survives_a_resume(make_loop: MakeLoop) -> None:
    settings = ('task.options={rule="always"}', "training.flat_steps_allowed=5")
    assert make_loop(*settings, "training.steps=3").run() is None
    again = make_loop(*settings, "training.steps=9", resume=True)
    assert (again.run() or "").startswith("for 5 steps every completion was right")
    assert again.steps[-1]["step"] == 5


@pytest.mark.parametrize("mode", ["pipeline", "ppo"])
@pytest.mark.parametrize("prompts", [3, 4])
def test_a_set_as_small_as_a_batch_is_enough(make_loop: MakeLoop, mode: str, prompts: int) -> None:
    """A smaller one is refused before the start (tests/cli); here batches run over the end of an epoch."""
    loop = make_loop(f"task.options={{prompts={prompts}}}", f"pipeline.mode={mode}")
    assert loop.run() is None
    assert len(loop.steps) == 6


def test_a_curriculum_that_ends_in_the_midst_of_a_batch_ends_the_run(make_loop: MakeLoop) -> None:
    """Ten prompts, three a step, each dropped by its first visit: the tenth is asked three times to fill a batch."""
    loop = make_loop('task.options={rule="always", prompts=10}', "objective.no_positive_resampling=1.0", "pipeline.k=0")
    reason = loop.run()
    assert reason is not None
    assert "No-Positive-Resampling has dropped all 10 training prompts" in reason
    assert len(loop.steps) == 4
