"""Token weights against arithmetic done by hand, and the one property that all of them share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalerl_mini.objective import token_weights

# Two groups. Group 7: completions of 3 and 1 trained tokens; group 2: of 2 tokens and of none (all forced).
MASK = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
GROUP = torch.tensor([7, 7, 2, 2])
BY_HAND = {
    "prompt": [1 / (2 * 4), 1 / (2 * 4), 1 / (2 * 2)],  # 2 prompts, 4 and 2 tokens
    "sample": [1 / (3 * 3), 1 / (3 * 1), 1 / (3 * 2)],  # 3 completions that have tokens at all
    "token": [1 / 6, 1 / 6, 1 / 6],
}


@pytest.mark.parametrize("aggregation", BY_HAND)
def test_weights_by_hand(aggregation: str) -> None:
    weights = token_weights(MASK, GROUP, aggregation)
    for row, expected in enumerate(BY_HAND[aggregation]):
        assert weights[row][MASK[row]].tolist() == pytest.approx([expected] * int(MASK[row].sum()), rel=1e-6)
    assert weights[~MASK].abs().max() == 0
    assert weights.dtype == torch.float32


@pytest.mark.parametrize("aggregation", BY_HAND)
def test_an_empty_mask_has_no_weight(aggregation: str) -> None:
    assert token_weights(torch.zeros_like(MASK), GROUP, aggregation).sum() == 0
    assert token_weights(torch.zeros(0, 4, dtype=torch.bool), GROUP[:0], aggregation).shape == (0, 4)


@pytest.mark.parametrize("aggregation", BY_HAND)
def test_a_group_without_tokens_is_no_member_of_the_mean(aggregation: str) -> None:
    alone = token_weights(MASK[:2], GROUP[:2], aggregation)
    mask = torch.cat([MASK[:2], torch.zeros(3, 4, dtype=torch.bool)])
    beside = token_weights(mask, torch.tensor([7, 7, 1, 1, 9]), aggregation)
    assert torch.equal(alone, beside[:2])


def test_unknown_aggregation_is_refused() -> None:
    with pytest.raises(ValueError, match="prompt, sample, token"):
        token_weights(MASK, GROUP, "batch")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    arrays(np.bool_, st.tuples(st.integers(1, 8), st.integers(1, 12))),
    st.randoms(use_true_random=False),
    st.sampled_from(sorted(BY_HAND)),
)
def test_weights_sum_to_one_and_every_member_has_the_same_share(mask: np.ndarray, random, aggregation: str) -> None:
    trained, group = torch.from_numpy(mask), torch.tensor([random.randrange(3) for _ in mask])
    weights = token_weights(trained, group, aggregation).double()
    assert weights.sum() == pytest.approx(1.0 if mask.any() else 0.0, abs=1e-6)
    shares = {
        "prompt": [weights[group == member].sum() for member in group.unique()],
        "sample": list(weights.sum(1)),
        "token": list(weights[trained]),
    }[aggregation]
    shares = [float(share) for share in shares if share > 0]
    assert all(share == pytest.approx(1 / len(shares), abs=1e-6) for share in shares)
