"""Invariant 1 on the model: lag <= k and no deadlock under random schedules, and under all schedules when small."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.schedule import Rules, Schedule, run_random

FREE_AT_TAKE = Rules(free_at="take", admit="newest")
ADMIT_BEFORE_LOADING = Rules(free_at="publish", admit="any")


def _random_schedule(seed: int, k: int, rules: Rules) -> int:
    random = Random(seed)
    tokens = [random.choice([1, 1, 2, 3, 5, 40]) for _ in range(random.randint(1, 12))]
    first = random.choice([0, 0, 5])
    schedule = Schedule.start(random.randint(1, 6), k, random.randint(1, 3), tokens, rules, first)
    return run_random(schedule, 12 + 2 * k, random, random.choice([0.0, 0.0, 0.002]))


@pytest.mark.parametrize("rules", [Rules(), Rules(admit="newest")], ids=["ticket", "newest"])
@pytest.mark.parametrize("k", range(9))
def test_lag_never_exceeds_k_on_random_schedules(k: int, rules: Rules) -> None:
    worst = max(_random_schedule(seed, k, rules) for seed in range(100))
    assert worst <= k
    assert worst == k, "the schedules are too tame to reach the bound"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), k=st.integers(0, 8))
def test_lag_never_exceeds_k_on_any_schedule_hypothesis_finds(seed: int, k: int) -> None:
    assert _random_schedule(seed, k, Rules()) <= k


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_freeing_at_take_is_off_by_exactly_one(k: int) -> None:
    assert max(_random_schedule(seed, k, FREE_AT_TAKE) for seed in range(40)) == k + 1


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_admitting_before_loading_has_no_bound(k: int) -> None:
    assert max(_random_schedule(seed, k, ADMIT_BEFORE_LOADING) for seed in range(40)) > k + 1


def _all_schedules(start: Schedule, steps: int) -> tuple[int, int]:
    """Explore every order of moves, deaths at every moment included; returns (states seen, greatest lag).

    Without deaths no order of moves returns to an earlier state, so "somebody can move in every state" means that every
    schedule reaches the last version.
    """
    last = start.published + steps
    seen, todo, lag = {start.key()}, [start], 0
    while todo:
        state = todo.pop()
        lag = max(lag, state.lag)
        if state.published == last:
            continue
        moves = state.moves()
        assert moves, f"deadlock: nobody can move in {state.key()}"
        for kind, index in [*moves, *(("die", index) for index in range(len(state.generators)))]:
            after = state.copy()
            if kind == "die":
                after.die(index)
            else:
                after.apply((kind, index))
            if after.key() not in seen:
                seen.add(after.key())
                todo.append(after)
    return len(seen), lag


@pytest.mark.parametrize(
    ("prompts", "k", "generators", "steps"), [(1, 0, 3, 3), (2, 0, 2, 3), (1, 1, 2, 4), (2, 1, 2, 3), (1, 2, 2, 4)]
)
def test_every_schedule_of_a_small_pipeline_keeps_the_bound(prompts: int, k: int, generators: int, steps: int) -> None:
    states, lag = _all_schedules(Schedule.start(prompts, k, generators, [2, 1], Rules()), steps)
    assert lag == k
    assert states > 100


@pytest.mark.parametrize("rules", [FREE_AT_TAKE, ADMIT_BEFORE_LOADING], ids=["free-at-take", "admit-before-loading"])
@pytest.mark.parametrize("k", [0, 1])
def test_every_schedule_finds_the_fault_of_a_wrong_rule(k: int, rules: Rules) -> None:
    _, lag = _all_schedules(Schedule.start(1, k, 1, [2], rules), 4)
    assert lag > k
