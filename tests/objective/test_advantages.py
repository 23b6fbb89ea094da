"""Advantages against arithmetic done by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scalerl_mini.objective import group_advantages


def rewards(*groups: list[float]) -> Tensor:
    return torch.tensor(groups, dtype=torch.float64)


def test_unnormalised_advantages_are_rewards_minus_the_group_mean() -> None:
    # means 1/4 and 3/4
    advantages, keep = group_advantages(rewards([1, 0, 0, 0], [1, 1, 0, 1]), "none")
    assert advantages.tolist() == [[0.75, -0.25, -0.25, -0.25], [0.25, 0.25, -0.75, 0.25]]
    assert keep.tolist() == [True, True]


def test_prompt_norm_divides_by_the_population_std_of_the_group() -> None:
    # mean 1/4, variance (9/16 + 3/16)/4 = 3/16, std sqrt(3)/4: advantages sqrt(3) and -1/sqrt(3)
    advantages, _ = group_advantages(rewards([1, 0, 0, 0]), "prompt", eps=0.0)
    third = 1 / math.sqrt(3)
    assert advantages[0].tolist() == pytest.approx([math.sqrt(3), -third, -third, -third], rel=1e-12)


def test_batch_norm_divides_by_the_std_of_all_kept_advantages() -> None:
    # advantages +-1/2 and +-1/4: variance (2/4 + 2/16)/4 = 5/32
    advantages, _ = group_advantages(rewards([1, 0], [0.75, 0.25]), "batch", eps=0.0)
    std = math.sqrt(5 / 32)
    assert advantages.flatten().tolist() == pytest.approx([0.5 / std, -0.5 / std, 0.25 / std, -0.25 / std], rel=1e-12)


def test_flat_groups_do_not_shrink_the_batch_std() -> None:
    # with the two flat groups in the std it would be 1/2 * sqrt(1/3), and the advantages sqrt(3) instead of 1
    advantages, keep = group_advantages(rewards([1, 1], [1, 0], [0, 0]), "batch", eps=0.0)
    assert keep.tolist() == [False, True, False]
    assert advantages.tolist() == [[0, 0], [1, -1], [0, 0]]


def test_without_the_filter_flat_groups_stay_and_do_enter_the_batch_std() -> None:
    # six advantages, two of them +-1/2: variance 2/4/6 = 1/12
    advantages, keep = group_advantages(rewards([1, 1], [1, 0], [0, 0]), "batch", eps=0.0, zero_variance_filter=False)
    assert keep.tolist() == [True, True, True]
    assert advantages[1].tolist() == pytest.approx([math.sqrt(3), -math.sqrt(3)], rel=1e-12)
    assert advantages[[0, 2]].abs().max() == 0


def test_eps_is_added_to_the_std() -> None:
    advantages, _ = group_advantages(rewards([1, 0]), "prompt", eps=0.5)
    assert advantages.tolist() == [[0.5, -0.5]]  # 1/2 / (1/2 + 1/2)


@pytest.mark.parametrize("norm", ["batch", "prompt", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rewards_equal_but_for_rounding_are_flat(norm: str, dtype: torch.dtype) -> None:
    # 0.1 + 0.2 is 0.30000000000000004; its own std is 1e-17 and would turn rounding into advantages of +-1
    advantages, keep = group_advantages(torch.tensor([[0.1 + 0.2, 0.3], [1, 0]], dtype=dtype), norm)
    assert keep.tolist() == [False, True]
    assert advantages[0].tolist() == [0, 0]


@pytest.mark.parametrize("norm", ["batch", "prompt", "none"])
@pytest.mark.parametrize("zero_variance_filter", [True, False])
def test_a_batch_of_flat_groups_has_zero_advantages(norm: str, zero_variance_filter: bool) -> None:
    advantages, keep = group_advantages(rewards([1, 1], [0, 0]), norm, zero_variance_filter=zero_variance_filter)
    assert advantages.tolist() == [[0, 0], [0, 0]]
    assert keep.any() == (not zero_variance_filter)


def test_rewards_of_plus_and_minus_one_are_not_flat() -> None:
    # the paper prints the filter as 0 < mean(r) < 1, which with rewards +-1 would drop this group (mean 0)
    _, keep = group_advantages(rewards([1, -1]), "batch")
    assert keep.tolist() == [True]


def test_unknown_norm_and_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="batch, prompt, none"):
        group_advantages(rewards([1, 0]), "group")
    with pytest.raises(ValueError, match=r"\[P, G\]"):
        group_advantages(torch.tensor([1.0, 0.0]), "batch")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(2, 5).flatmap(
        lambda size: st.lists(
            st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size), min_size=1, max_size=6
        )
    ),
    st.sampled_from(["batch", "prompt", "none"]),
)
def test_kept_advantages_sum_to_zero_and_rise_with_the_reward(groups: list[list[float]], norm: str) -> None:
    values = torch.tensor(groups, dtype=torch.float64)
    advantages, keep = group_advantages(values, norm)
    assert advantages.sum(1).abs().max() < 1e-9
    for row, advantage, kept in zip(values, advantages, keep, strict=True):
        assert kept == (row.max() > row.min())
        assert advantage[row.argmax()] == advantage.max()
