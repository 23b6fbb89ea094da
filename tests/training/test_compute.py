"""The compute meter: tokens, FLOPs by hand, and a clock that stands still during evaluation and over a resume."""

from __future__ import annotations

import pytest

from scalerl_mini.config_groups import ObjectiveConfig
from scalerl_mini.training import compute
from scalerl_mini.training.batch import assemble
from scalerl_mini.training.compute import ComputeMeter, multiplied_parameters
from tests.policy.tiny import Tiny, tiny_policy
from tests.training.records import Completion, record


class Clock:
    """Stands for the `time` module."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(compute, "time", clock)
    return clock


def test_the_embedding_counts_only_where_it_is_the_head() -> None:
    """Per layer: q and o 32x32, k and v 16x32, MLP 3 x 32x48, norms 2 x 32 and (Qwen3) 2 x 8; final norm 32; head 24x32."""
    layer = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 48 + 2 * 32 + 2 * 8
    body = 2 * layer + 32
    assert multiplied_parameters(tiny_policy(Tiny("qwen3"))) == body + 24 * 32
    assert multiplied_parameters(tiny_policy(Tiny("qwen3", tied=True))) == body + 24 * 32


def test_one_batch_by_hand() -> None:
    first = record([1, 5, 6], [Completion([7, 8, 2], [True, False, True], 1.0), Completion([4], [True], 0.0)])
    flat = record([1], [Completion([4, 4], [True] * 2, 0.0), Completion([4, 2], [True] * 2, 0.0)])
    for slot in (first, flat):
        slot["logprobs"] = -1.0
    meter = ComputeMeter(devices=2, parameters=10)
    batch = assemble([first, flat], ObjectiveConfig())
    meter.add(batch, forward_tokens=10, trained_tokens=batch.trained_tokens)
    row = meter.row()
    assert row["generated_tokens"] == 3 + 1 + 2 + 2
    assert row["trained_tokens"] == 3
    # 2 FLOPs a parameter and token: 8 sampled, 3 + 1 of the two prompts, and 10 trained at three times that
    assert row["flops"] == 2 * 10 * (8 + 4 + 30)


def test_a_discarded_group_costs_what_its_sampling_cost() -> None:
    meter = ComputeMeter(devices=2, parameters=10)
    meter.add_discarded(generated_tokens=7, prompt_tokens=3)
    row = meter.row()
    assert (row["generated_tokens"], row["trained_tokens"], row["flops"]) == (7, 0, 2 * 10 * 10)


def test_the_clock_counts_training_alone_on_every_device(clock: Clock) -> None:
    meter = ComputeMeter(devices=3, parameters=1)
    clock.now += 50  # before the start
    meter.start()
    clock.now += 1800
    assert meter.wall_seconds == 1800
    meter.pause()
    clock.now += 999  # an evaluation
    meter.pause()
    assert meter.row()["device_hours"] == pytest.approx(3 * 0.5)
    meter.start()
    clock.now += 1800
    assert meter.row()["wall_seconds"] == 3600
    assert meter.row()["device_hours"] == pytest.approx(3.0)


def test_totals_go_on_after_a_restore(clock: Clock) -> None:
    meter = ComputeMeter(devices=2, parameters=10)
    meter.start()
    meter.add_discarded(7, 3)
    clock.now += 60
    again = ComputeMeter(devices=2, parameters=10)
    again.restore(meter.state())
    clock.now += 1000  # between the two runs
    assert again.row() == meter.row() | {"wall_seconds": 60.0, "device_hours": 2 * 60 / 3600}
    again.start()
    clock.now += 60
    again.add_discarded(7, 3)
    assert again.row()["wall_seconds"] == 120
    assert again.row()["generated_tokens"] == 14
