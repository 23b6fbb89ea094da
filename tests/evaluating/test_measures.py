"""pass@k against brute force, standard errors against simulated truth and a bootstrap."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.evaluating.measures import Estimate, Measures, choose_ks, pass_at_k


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples_that_hold_a_correct_one(samples: int) -> None:
    for solved in range(samples + 1):
        outcomes = [True] * solved + [False] * (samples - solved)
        for k in range(1, samples + 1):
            choices = list(combinations(outcomes, k))
            expected = sum(map(any, choices)) / len(choices)
            assert pass_at_k(np.array([solved]), samples, k)[0] == pytest.approx(expected, abs=1e-12), (solved, k)


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    found = pass_at_k(np.array([0, 1, 5000, 10_000]), 10_000, 1000)
    assert found == pytest.approx([0.0, 0.1, 1.0, 1.0])


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_more_than_was_sampled_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(np.array([1]), 4, k)


def test_pass_at_k_is_unbiased() -> None:
    """20000 prompts of pass rate .2, 6 samples each: pass@3 is 1 - .8^3 within four of its standard errors."""
    solved = np.random.default_rng(0).binomial(6, 0.2, 20_000)
    found = Estimate.of(pass_at_k(solved, 6, 3))
    assert found.stderr is not None
    assert abs(found.value - (1 - 0.8**3)) < 4 * found.stderr


def test_measures_by_hand() -> None:
    rewards = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.5]], np.float32)
    found = Measures.of(rewards, (1, 2))
    # prompt means 1/2, 1, 1/4; a reward of 1/2 does not solve the third prompt
    assert (found.prompts, found.mean.value) == (3, pytest.approx(7 / 12))
    assert found.mean.stderr == pytest.approx(np.std([0.5, 1.0, 0.25], ddof=1) / 3**0.5)
    assert found.pass_at_k[1].value == pytest.approx((0.5 + 1 + 0) / 3)
    assert found.pass_at_k[2].value == pytest.approx(2 / 3)


def test_one_prompt_has_no_standard_error() -> None:
    assert Measures.of(np.ones((1, 4)), (4,)).pass_at_k[4] == Estimate(1.0, None)


def simulated(evaluations: int, prompts: int, samples: int) -> np.ndarray:
    """Rewards [E, P, S] of evaluations that each ask prompts of their own, of very different difficulty."""
    rng = np.random.default_rng(1)
    rates = rng.beta(0.4, 0.6, (evaluations, prompts, 1))
    return (rng.random((evaluations, prompts, samples)) < rates).astype(float)


def test_the_standard_error_is_the_spread_over_new_prompts() -> None:
    """10000 simulated evaluations of 60 prompts x 4 samples: mean squared standard error against the variance of the
    estimates (whose own error is sqrt(2/10000) = 1.4 %; four of them are allowed)."""
    found = [Measures.of(rewards, (1, 2, 4)).pass_at_k for rewards in simulated(10_000, 60, 4)]
    for k in (1, 2, 4):
        spread = np.var([one[k].value for one in found], ddof=1)
        assert np.mean([(one[k].stderr or 0) ** 2 for one in found]) == pytest.approx(spread, rel=0.057), k


def test_completions_of_one_prompt_do_not_count_as_independent() -> None:
    """The error that takes all completions for independent would be much too small here: half."""
    rewards = simulated(2000, 60, 4)
    spread = rewards.mean(axis=(1, 2)).std(ddof=1)
    naive = np.mean([np.sqrt(one.var(ddof=1) / one.size) for one in rewards])
    clustered = np.mean([Measures.of(one, ()).mean.stderr for one in rewards])
    assert clustered == pytest.approx(spread, rel=0.05)
    assert naive < 0.7 * spread


def test_a_bootstrap_over_prompts_agrees() -> None:
    (rewards,) = simulated(1, 300, 8)
    rng, found = np.random.default_rng(2), Measures.of(rewards, (4,))
    draws = [Measures.of(rewards[rng.integers(0, 300, 300)], (4,)) for _ in range(2000)]
    assert np.std([one.mean.value for one in draws]) == pytest.approx(found.mean.stderr, rel=0.06)
    assert np.std([one.pass_at_k[4].value for one in draws]) == pytest.approx(found.pass_at_k[4].stderr, rel=0.06)


def test_samples_and_k_that_were_not_named_follow_from_those_that_were() -> None:
    assert choose_ks(None, None, 4) == (4, (1, 4))
    assert choose_ks(None, 20, 4) == (20, (1, 4, 16, 20))
    assert choose_ks("8, 2", None, 4) == (8, (2, 8))
    assert choose_ks("2", None, 4) == (4, (2,))
    with pytest.raises(UserError, match="--k 8 cannot be estimated"):
        choose_ks("8", 4, 4)
