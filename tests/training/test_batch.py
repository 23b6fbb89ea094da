"""One optimiser batch: what is copied, what is trained, and how it is cut."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl_mini.config_groups import ObjectiveConfig
from scalerl_mini.policy import Policy
from scalerl_mini.training.batch import Batch, assemble
from tests.policy.tiny import Tiny, tiny_policy
from tests.training.records import Completion, random_records, record

CPU = torch.device("cpu")


def by_hand(**options: object) -> Batch:
    """Two groups: rewards 1, 0 with 4 + 2 tokens (one forced), and a flat one."""
    first = record(
        [1, 5], [Completion([6, 7, 8, 2], [True, False, True, True], 1.0), Completion([6, 9], [True, True], 0.0)], 11
    )
    first["logprobs"][0, :4] = [-1, -5, -2, -3]
    first["logprobs"][1, :2] = [-1, -4]
    flat = record([1], [Completion([4], [True], 0.5), Completion([4, 4, 2], [True] * 3, 0.5)], 12)
    flat["logprobs"] = -1.0
    return assemble([first, flat], ObjectiveConfig(**options))


def test_what_a_batch_knows() -> None:
    batch = by_hand()
    assert batch.prompt_index == [11, 12]
    assert [prompt.tolist() for prompt in batch.prompts] == [[1, 5], [1, 5], [1], [1]]
    assert batch.lengths.tolist() == [4, 2, 1, 3]
    assert batch.keep.tolist() == [True, False]
    assert batch.trained_rows.tolist() == [True, True, False, False]
    assert batch.trained_tokens == 5
    assert batch.prompt_tokens == 3  # each group's prompt once
    assert batch.truncated.tolist() == [False, True, True, False]
    assert batch.interrupted.tolist() == [True, False, False, False]
    assert batch.dropped_tokens == 0
    assert batch.advantages.tolist() == pytest.approx([1, -1, 0, 0], abs=1e-5)


@pytest.mark.parametrize(("aggregation", "expected"), [("prompt", (5, 5)), ("sample", (6, 4)), ("token", (5, 5))])
def test_forced_tokens_padding_and_flat_groups_do_not_dilute_the_weights(
    aggregation: str, expected: tuple[int, int]
) -> None:
    """5 trained tokens, 3 + 2; the forced token, the padding and the 4 tokens of the flat group are not below the line."""
    weights = by_hand(aggregation=aggregation).weights
    assert weights[0, :4].tolist() == pytest.approx([1 / expected[0], 0, 1 / expected[0], 1 / expected[0]])
    assert weights[1, :2].tolist() == pytest.approx([1 / expected[1]] * 2)
    assert float(weights.sum()) == pytest.approx(1)
    assert weights[2:].abs().max() == 0


def test_lag_is_of_sampled_tokens_and_never_of_padding() -> None:
    lag = by_hand().lag(5)
    assert lag.tolist() == [2] * 9  # 5 + 4 sampled tokens of version 3; poison says -99


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_token_with_a_non_finite_behaviour_log_probability_is_dropped_and_counted(bad: float) -> None:
    slot = record([1], [Completion([4, 5], [True, True], 1.0), Completion([4, 2], [True, True], 0.0)])
    slot["logprobs"][:, :2] = [[-1, bad], [-1, -1]]
    batch = assemble([slot], ObjectiveConfig())
    assert batch.dropped_tokens == 1
    assert batch.mask[:, :2].tolist() == [[True, False], [True, True]]
    assert batch.weights[:, :2].tolist() == pytest.approx([pytest.approx([1 / 3, 0]), pytest.approx([1 / 3, 1 / 3])])
    assert batch.trained_tokens == 3


def test_the_batch_does_not_change_when_its_slots_are_used_again(qwen3: Policy) -> None:
    records = random_records(qwen3, 3)
    batch = assemble(records, ObjectiveConfig())
    before = [np.copy(value) for value in vars(batch).values() if isinstance(value, np.ndarray)]
    prompts = [prompt.copy() for prompt in batch.prompts]
    for slot in records:
        for name in slot.dtype.names:
            slot[name] = 1
    after = [value for value in vars(batch).values() if isinstance(value, np.ndarray)]
    assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(before, after, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(prompts, batch.prompts, strict=True))


def test_exclude_truncated_leaves_them_out_above_and_below_the_line() -> None:
    batch = by_hand(exclude_truncated=True)
    assert batch.trained_tokens == 3
    assert batch.weights[0, :4].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    assert batch.advantages[0] == pytest.approx(1, abs=1e-5)  # the baseline still knows them


def test_the_length_penalty_by_hand() -> None:
    """L_max 8, L_cache 4: free up to 4 tokens, then -1/8 a token (half of the paper's, whose rewards span 2)."""
    lengths, expected = [3, 4, 5, 8, 10], [1.0, 1.0, 0.875, 0.5, 0.5]
    correct = [Completion([4] * length, [True] * length, 1.0) for length in lengths]
    slot = record([1], [*correct, Completion([4] * 10, [True] * 10, 0.0)])
    slot["logprobs"] = -1.0
    options = ObjectiveConfig(length_penalty_limit=8, length_penalty_cache=4, advantage_norm="none")
    batch = assemble([slot], options)
    mean = sum(expected) / 6
    assert batch.advantages.tolist() == pytest.approx([*(value - mean for value in expected), -mean], abs=1e-6)
    assert batch.rewards[0].tolist() == [1, 1, 1, 1, 1, 0]


@cache
def random_batch(seed: int) -> Batch:
    records = random_records(tiny_policy(Tiny()), 4, seed, flat=(2,))
    return assemble(records, ObjectiveConfig(aggregation="sample"))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 120), st.integers(0, 5))
def test_cuts_cover_every_trained_token_once_and_keep_the_limit(tokens: int, seed: int) -> None:
    """Every target is found again in the batch with its own prompt, weight, advantage and log-probability."""
    batch = random_batch(seed)
    seen, previous = [], 0
    for micro in batch.micro_batches(tokens, CPU):
        assert len(micro.ids) == int(micro.lengths.sum())
        assert len(micro.ids) <= tokens or len(micro.lengths) == 1
        assert int(micro.lengths.min()) >= previous
        previous = int(micro.lengths.max())
        assert torch.equal(micro.mask.nonzero(), torch.stack([micro.row, micro.column], 1))
        for target, row, column in zip(micro.targets, micro.row, micro.column, strict=True):
            value = float(micro.behavior_logprobs[row, column])  # random, so it names its token
            seen.append(
                (value, int(micro.ids[target]), float(micro.weights[row, column]), float(micro.advantages[row]))
            )
            start = int(micro.lengths[:row].sum())
            assert start < target < start + int(micro.lengths[row])
    where = np.argwhere(batch.mask & batch.trained_rows[:, None])
    expected = [
        (
            float(batch.behavior_logprobs[n, t]),
            int(batch.tokens[n, t]),
            float(batch.weights[n, t]),
            float(batch.advantages[n]),
        )
        for n, t in where
    ]
    assert sorted(seen) == sorted(expected)
    assert len(seen) == batch.trained_tokens


def test_a_batch_of_flat_groups_has_no_micro_batch(qwen3: Policy) -> None:
    batch = assemble(random_records(qwen3, 2, flat=(0, 1)), ObjectiveConfig())
    assert list(batch.micro_batches(100, CPU)) == []
    assert (batch.trained_tokens, int(batch.keep.sum())) == (0, 0)
    assert float(batch.weights.sum()) == 0
