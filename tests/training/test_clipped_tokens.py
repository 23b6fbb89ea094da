"""Which tokens are clipped, counted by the sign of their advantage: by hand, through the learner, and over a resume."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from scalerl_mini.training.batch import assemble
from scalerl_mini.training.clipped_tokens import ClippedTokens
from tests.policy.tiny import Tiny, tiny_policy
from tests.training.records import Completion, fill_logprobs, random_records, record
from tests.training.test_learner import caught, configured, trainable

TOKENS = torch.tensor([5, 5, 7, 5, 9, 7])
ADVANTAGES = torch.tensor([1.0, 1.0, 2.0, -1.0, -3.0, 0.0])
CLIPPED = torch.tensor([True, False, True, True, False, True])


def tally() -> ClippedTokens:
    counted = ClippedTokens(12)
    counted.add(TOKENS, ADVANTAGES, CLIPPED)
    return counted


def test_counts_by_hand() -> None:
    """Token 5: twice good, one of them clipped, once bad and clipped. Of 7, what has no advantage does not count."""
    counts = tally().counts
    assert counts[:, 5].tolist() == [2, 1, 1, 1]
    assert counts[:, 7].tolist() == [1, 1, 0, 0]
    assert counts[:, 9].tolist() == [0, 0, 1, 0]
    assert counts.sum() == 2 + 1 + 1 + 1 + 1 + 1 + 1


def test_the_table_begins_with_the_most_clipped_and_leaves_out_the_unclipped(tmp_path: Path) -> None:
    rows = tally().table(lambda ids: f"<{ids[0]}>")
    assert [(row["token"], row["text"]) for row in rows] == [(5, "<5>"), (7, "<7>")]
    assert tally().table(str, most=1) == [rows[0] | {"text": "[5]"}]
    tally().write(tmp_path / "clipped_tokens.json", str, 3)
    table = json.loads((tmp_path / "clipped_tokens.json").read_text(encoding="utf-8"))
    assert (table["policy_version"], table["seen_positive"], table["clipped_positive"]) == (3, 3, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["clipped_tokens.json"]


def test_a_restored_tally_goes_on() -> None:
    first, again = tally(), ClippedTokens(12)
    again.restore(json.loads(json.dumps(first.state())))
    for counted in (first, again):
        counted.add(TOKENS, ADVANTAGES, CLIPPED)
    assert torch.equal(first.counts, again.counts)
    assert first.counts[0, 5] == 4


def test_the_learner_counts_what_its_loss_clips() -> None:
    """A good completion 7 8 2 whose 8 was once eight times less likely, a bad one 9 9 whose second 9 is half as likely."""
    policy = tiny_policy(Tiny("qwen3"))
    good, bad = Completion([7, 8, 2], [True] * 3, 1.0), Completion([9, 9, 5], [True, True, False], 0.0)
    slot = record([1, 5], [good, bad])
    fill_logprobs(policy, slot, np.random.default_rng(0), noise=0.0)
    slot["logprobs"][0, 1] -= 2.1
    slot["logprobs"][1, 1] += 0.7
    learner, config = trainable(policy, objective__loss="dapo", training__micro_batch_tokens=1)
    learner.update(assemble([slot], config.objective))
    table = {row["token"]: row for row in learner.clipped_tokens.table(policy.decode)}
    assert {token: (row["clipped_positive"], row["clipped_negative"]) for token, row in table.items()} == {
        8: (1, 0),
        9: (0, 1),
    }
    assert table[9]["seen_negative"] == 2
    assert table[8]["text"] == policy.decode([8])
    assert learner.clipped_tokens.counts[:, 5].sum() == 0  # forced


def test_totals_are_those_of_the_step_row() -> None:
    policy = tiny_policy(Tiny("qwen3"))
    learner, config = trainable(policy, objective__loss="dapo")
    batch = assemble(random_records(policy, 6, seed=1, noise=1.0), config.objective)
    metrics, _ = learner.update(batch)
    counts = learner.clipped_tokens.counts.sum(1).tolist()
    both, positive = metrics["clamped_fraction"], metrics["clamped_positive_fraction"]
    assert [counts[1], counts[3]] == pytest.approx(
        [share * batch.trained_tokens for share in (positive, both - positive)]
    )
    assert min(counts[1], counts[3]) > 0
    assert caught(policy, batch, configured())[0]["clamped_fraction"] < metrics["clamped_fraction"]
