"""The curriculum: shuffled epochs, No-Positive-Resampling, and an identical continuation after a restore."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scalerl_mini.rollout.curriculum import Curriculum, CurriculumExhausted


def draws(curriculum: Curriculum, count: int) -> list[tuple[int, int]]:
    return [curriculum.draw() for _ in range(count)]


def test_every_prompt_comes_once_an_epoch_in_a_new_order() -> None:
    curriculum = Curriculum(30, seed=5, threshold=0.9)
    epochs = [draws(curriculum, 30) for _ in range(3)]
    for number, epoch in enumerate(epochs):
        assert sorted(prompt for prompt, _ in epoch) == list(range(30))
        assert {e for _, e in epoch} == {number}
    orders = [[prompt for prompt, _ in epoch] for epoch in epochs]
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != list(range(30))


def test_the_order_depends_on_the_seed_alone() -> None:
    assert draws(Curriculum(20, 1, None), 50) == draws(Curriculum(20, 1, None), 50)
    assert draws(Curriculum(20, 1, None), 50) != draws(Curriculum(20, 2, None), 50)


def test_a_prompt_at_the_threshold_is_dropped_and_one_below_it_is_not() -> None:
    curriculum = Curriculum(10, seed=0, threshold=0.9)
    draws(curriculum, 10)
    curriculum.record(3, 0.9)
    curriculum.record(4, 1.0)
    curriculum.record(5, 0.875)
    curriculum.record(6, 0.0)
    assert np.flatnonzero(curriculum.dropped).tolist() == [3, 4]
    second = draws(curriculum, 8)
    assert sorted(prompt for prompt, _ in second) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert {epoch for _, epoch in second} == {1}


def test_the_drop_takes_effect_at_the_next_draw_also_within_an_epoch() -> None:
    whole = [prompt for prompt, _ in draws(Curriculum(6, 0, 0.9), 6)]
    curriculum = Curriculum(6, 0, 0.9)
    assert curriculum.draw()[0] == whole[0]
    curriculum.record(whole[1], 1.0)
    assert [prompt for prompt, _ in draws(curriculum, 4)] == whole[2:]


def test_a_pass_rate_that_is_the_threshold_but_for_fp32_rounding_drops() -> None:
    """Nine of ten fp32 rewards average to 0.8999999762 in fp32: the paper's ">= 0.9" holds."""
    curriculum = Curriculum(2, seed=0, threshold=0.9)
    curriculum.record(0, float(np.float32([1] * 9 + [0]).mean()))
    assert curriculum.dropped.tolist() == [True, False]


def test_the_last_visit_decides() -> None:
    curriculum = Curriculum(2, seed=0, threshold=0.5)
    curriculum.record(0, 1.0)
    assert curriculum.dropped[0]
    curriculum.record(0, 0.25)
    assert not curriculum.dropped[0]


def test_without_a_threshold_everything_stays() -> None:
    curriculum = Curriculum(4, seed=0, threshold=None)
    for prompt in range(4):
        curriculum.record(prompt, 1.0)
    assert not curriculum.dropped.any()
    assert sorted(prompt for prompt, _ in draws(curriculum, 4)) == [0, 1, 2, 3]


def test_an_unseen_prompt_is_never_dropped() -> None:
    assert not Curriculum(5, 0, 1e-7).dropped.any()


def test_when_all_are_dropped_it_says_so_and_how_to_go_on() -> None:
    curriculum = Curriculum(3, seed=0, threshold=0.9)
    for prompt in range(3):
        curriculum.record(prompt, 1.0)
    with pytest.raises(CurriculumExhausted, match=r"all 3 .*no_positive_resampling"):
        curriculum.draw()


def test_the_last_prompt_that_is_left_is_found_from_any_place() -> None:
    for cursor in range(7):
        curriculum = Curriculum(7, seed=1, threshold=0.9)
        drawn = [prompt for prompt, _ in draws(curriculum, cursor)]
        for prompt in range(1, 7):
            curriculum.record(prompt, 1.0)
        assert [prompt for prompt, _ in draws(curriculum, 3)] == [0, 0, 0], drawn


@pytest.mark.parametrize("before", [0, 3, 8, 13])
def test_a_restored_curriculum_goes_on_identically(before: int) -> None:
    curriculum = Curriculum(8, seed=4, threshold=0.9)
    for prompt, _ in draws(curriculum, before):
        curriculum.record(prompt, [0.1, 1.0, 1 / 3][prompt % 3])
    state = json.loads(json.dumps(curriculum.state()))
    again = Curriculum(8, seed=4, threshold=0.9)
    again.restore(state)
    assert again.state() == curriculum.state()
    assert np.array_equal(again.pass_rate, curriculum.pass_rate, equal_nan=True)
    assert draws(again, 20) == draws(curriculum, 20)
