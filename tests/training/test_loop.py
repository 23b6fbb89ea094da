"""The loop of trainer and generators as a whole: nothing lost, nothing too old, nobody waiting for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from scalerl_mini.rollout.engines import Finished
from scalerl_mini.runtime.waiting import WaitTimeout
from scalerl_mini.training.batch import Batch
from tests.training.loop import Loop, fake

MakeLoop = Callable[..., Loop]


def dropped(batch: Batch) -> int:
    """Tokens that were generated and not trained: flat groups, forced tokens, unusable log-probabilities."""
    trained = batch.mask & batch.trained_rows[:, None]
    return int(batch.lengths.sum()) - int(trained.sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("k", "generators"), [(0, 1), (1, 2), (3, 1), (4, 3)])
def test_every_interleaving_conserves_tokens_and_keeps_lag_within_k(
    make_loop: MakeLoop, k: int, generators: int, seed: int
) -> None:
    loop = make_loop(f"pipeline.k={k}", f"runtime.generators={generators}", "training.steps=7")
    loop.random.seed(seed)

    def check() -> None:
        trained = sum(batch.trained_tokens for _, batch in loop.batches)
        lost = sum(dropped(batch) for _, batch in loop.batches)
        assert loop.generated == trained + lost + loop.buffered
        assert loop.trainer.meter.generated_tokens == trained + lost
        assert loop.trainer.meter.trained_tokens == trained

    loop.after_step = check
    assert loop.run() is None
    assert [row["step"] for row in loop.steps] == list(range(1, 8))
    for version, batch in loop.batches:
        lag = batch.lag(version)
        assert lag.min() >= 0
        assert lag.max() <= k
    assert all(row["lag_max"] <= k for row in loop.steps)
    assert loop.buffered == 0  # no group beyond the last step is ever sampled


def test_lag_really_occurs(make_loop: MakeLoop) -> None:
    """Otherwise the bound above would hold for nothing."""
    loop = make_loop("pipeline.k=3", "training.steps=8")
    loop.run()
    assert max(row["lag_max"] for row in loop.steps) == 3
    versions = [batch.versions[row][batch.mask[row]] for _, batch in loop.batches for row in range(len(batch.lengths))]
    assert any(len(set(row.tolist())) > 1 for row in versions), "no completion saw an update in its midst"


@pytest.mark.parametrize("generators", [1, 2])
def test_ppo_phases_are_sampled_under_frozen_weights(make_loop: MakeLoop, generators: int) -> None:
    loop = make_loop("pipeline.mode=ppo", "pipeline.k=3", f"runtime.generators={generators}", "training.steps=8")
    assert loop.run() is None
    assert len(loop.batches) == 8
    for version, batch in loop.batches:
        assert set(batch.versions[batch.mask].tolist()) == {version // 3 * 3}
        assert set(batch.lag(version).tolist()) == {version % 3}


@pytest.mark.parametrize("mode", ["pipeline", "ppo"])
def test_refilled_groups_keep_their_place_and_are_counted(make_loop: MakeLoop, mode: str) -> None:
    loop = make_loop(f"pipeline.mode={mode}", "objective.refill_rounds=2", "task.options={prompts=40}")

    def check() -> None:
        assert loop.generated == loop.trainer.meter.generated_tokens + loop.buffered

    loop.after_step = check
    assert loop.run() is None
    assert sum(row["refilled_groups"] for row in loop.steps) > 0
    assert sum(row["effective_groups"] for row in loop.steps) > sum(row["groups"] for row in loop.steps) * 0.7
    assert all(row["lag_max"] <= 2 for row in loop.steps)
    if mode == "ppo":  # a phase is refilled as a whole, before its weights change
        assert {row["refilled_groups"] > 0 for row in loop.steps[1::2]} == {False}
        for version, batch in loop.batches:
            assert set(batch.versions[batch.mask].tolist()) == {version // 2 * 2}


def test_refilling_stops_when_no_prompt_is_left(make_loop: MakeLoop) -> None:
    """All groups are flat and every prompt is dropped by its first visit: no place may stay empty for ever."""
    loop = make_loop(
        'task.options={rule="always"}', "objective.refill_rounds=9", "objective.no_positive_resampling=0.9"
    )
    reason = loop.run()
    assert reason is not None
    assert "dropped all 12" in reason
    assert loop.steps
    assert loop.generated == loop.trainer.meter.generated_tokens + loop.buffered


def test_batches_are_consumed_in_the_order_of_the_curriculum(make_loop: MakeLoop) -> None:
    """The same prompts in the same order as a synchronous run, whatever the interleaving."""
    orders = []
    for index, settings in enumerate([("pipeline.k=0",), ("pipeline.k=3", "runtime.generators=2")]):
        loop = make_loop(*settings, "training.steps=8", folder=f"run{index}")
        loop.random.seed(index)
        loop.run()
        orders.append([prompt for _, batch in loop.batches for prompt in batch.prompt_index])
    assert orders[0] == orders[1]
    assert Counter(orders[0]) == dict.fromkeys(range(12), 2)  # 8 steps of 3 prompts: two epochs of 12


def test_rows_say_what_was_trained(make_loop: MakeLoop) -> None:
    loop = make_loop()
    loop.run()
    trained = 0
    for row, (version, batch) in zip(loop.steps, loop.batches, strict=True):
        trained += batch.trained_tokens
        assert row["policy_version"] == row["step"] == version + 1
        assert row["trained_tokens"] == trained
        assert row["groups"] == 3
        assert row["effective_groups"] == batch.keep.sum()
        assert row["reward_mean"] == pytest.approx(batch.rewards.mean())
        assert row["lag_mean"] == pytest.approx((version - batch.versions[batch.mask]).mean())
        texts = loop.folder.path / "rollouts" / f"step-{version + 1:05d}.jsonl"
        assert len(texts.read_text().splitlines()) == 2


def test_compute_columns_do_not_depend_on_scheduling(make_loop: MakeLoop) -> None:
    columns = ("flops", "generated_tokens", "trained_tokens")
    rows = []
    for k in (0, 3):
        loop = make_loop(f"pipeline.k={k}", folder=f"k{k}")
        loop.run()
        rows.append([[row[name] for name in columns] for row in loop.evals])
    assert rows[0] == rows[1]
    assert rows[0][-1][0] > 0


def test_all_flat_batches_are_counted_and_change_nothing(make_loop: MakeLoop) -> None:
    loop = make_loop('task.options={rule="always"}')
    before = loop.weights
    assert loop.run() is None
    assert [row["effective_groups"] for row in loop.steps] == [0] * 6
    assert [row["loss"] for row in loop.steps] == [0.0] * 6
    assert loop.steps[-1]["trained_tokens"] == 0 < loop.steps[-1]["generated_tokens"]
    for name, tensor in loop.weights.items():
        np.testing.assert_array_equal(tensor, before[name])


def test_weights_change_otherwise(make_loop: MakeLoop) -> None:
    loop = make_loop()
    before = loop.weights
    loop.run()
    assert any((tensor != before[name]).any() for name, tensor in loop.weights.items())


def test_an_exhausted_curriculum_ends_the_run_with_its_reason(make_loop: MakeLoop) -> None:
    """All twelve prompts are dropped after one visit. What is issued is trained, the last version is evaluated."""
    loop = make_loop('task.options={rule="always"}', "objective.no_positive_resampling=0.9", "training.steps=50")
    reason = loop.run()
    assert reason is not None
    assert "No-Positive-Resampling has dropped all 12 training prompts" in reason
    trained = [prompt for _, batch in loop.batches for prompt in batch.prompt_index]
    assert set(trained) == set(range(12))
    assert [row["step"] for row in loop.steps] == list(range(1, len(loop.batches) + 1))
    assert loop.evals[-1]["step"] == loop.steps[-1]["step"]
    assert (loop.folder.checkpoints / f"step-{len(loop.batches):05d}").is_dir()


def test_an_exhausted_curriculum_does_not_evaluate_twice(make_loop: MakeLoop) -> None:
    loop = make_loop(
        'task.options={rule="always"}', "objective.no_positive_resampling=0.9", "training.steps=50",
        "evaluation.early_every=1",
    )  # fmt: skip
    loop.run()
    assert [row["step"] for row in loop.evals] == [0, *(row["step"] for row in loop.steps)]


def test_a_token_without_a_finite_logprob_is_dropped_and_counted(make_loop: MakeLoop) -> None:
    loop = make_loop("training.steps=3")
    spoiled: list[tuple[int, int]] = []

    def spoil(finished: Finished) -> None:
        if finished.key[0] < 3:  # groups of the first batch
            finished.logprobs[0] = np.nan
            spoiled.append(finished.key)

    fake(loop.generators[0].engine).spoil = spoil
    loop.run()
    assert len(spoiled) == 6
    assert [row["dropped_tokens"] for row in loop.steps] == [6, 0, 0]
    assert [row["skipped"] for row in loop.steps] == [None] * 3  # the other tokens are trained
    assert all(np.isfinite(tensor).all() for tensor in loop.weights.values())


def test_generator_and_trainer_that_disagree_at_version_0_end_the_run(make_loop: MakeLoop) -> None:
    loop = make_loop()

    def wrong_temperature(finished: Finished) -> None:
        finished.logprobs[:] *= 1.01

    fake(loop.generators[0].engine).spoil = wrong_temperature
    with pytest.raises(RuntimeError, match="disagree before the first update"):
        loop.run()


def test_a_batch_that_never_comes_is_named(make_loop: MakeLoop) -> None:
    loop = make_loop("runtime.wait_timeout_s=0.05", "evaluation.early_every=7")
    with pytest.raises(WaitTimeout, match=r"batch 0 \(groups 0 to 2\).*generator-0 last seen"):
        loop.trainer.run()


def test_generators_report_the_version_and_checksum_they_loaded(make_loop: MakeLoop) -> None:
    loop = make_loop("runtime.generators=2")
    published: dict[int, int] = {}
    publish = loop.trainer.channel.publish

    def keep(version: int, arrays: dict[str, np.ndarray]) -> int:
        published[version] = publish(version, arrays)
        return published[version]

    loop.trainer.channel.publish = keep  # type: ignore[assignment]
    loads = 0

    def check() -> None:
        nonlocal loads
        for role in loop.roles:
            version = int(loop.control.get(role, "loaded_version"))
            if version >= 0:
                assert loop.control.get(role, "loaded_checksum") == published[version]
                loads += 1

    loop.after_step = check
    loop.run()
    assert loads > 5
