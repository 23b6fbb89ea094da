"""A packed sequence sees exactly what it would see alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from scalerl_mini.warmstart.model import SIZES, build_model
from scalerl_mini.warmstart.packing import IGNORED, Example, pack

EXAMPLES = [Example([1, 5, 6, 7, 8], 2), Example([1, 9, 10], 1), Example([1, 11, 12, 13, 14, 15, 16], 3)]


def test_rows_are_filled_longest_first() -> None:
    rows = pack(EXAMPLES, width=10, pad_id=0)
    assert rows.input_ids.tolist() == [[1, 11, 12, 13, 14, 15, 16, 1, 9, 10], [1, 5, 6, 7, 8, 0, 0, 0, 0, 0]]
    assert rows.position_ids.tolist() == [[0, 1, 2, 3, 4, 5, 6, 0, 1, 2], [0, 1, 2, 3, 4, 0, 0, 0, 0, 0]]


def test_only_completion_tokens_are_targets() -> None:
    rows = pack(EXAMPLES, width=10, pad_id=0)
    x = IGNORED
    assert rows.targets.tolist() == [[x, x, 13, 14, 15, 16, x, 9, 10, x], [x, 6, 7, 8, x, x, x, x, x, x]]


def test_packed_logits_and_loss_equal_those_of_the_sequences_alone() -> None:
    model = build_model(SIZES["micro"], seed=0).eval()
    rows = pack(EXAMPLES, width=10, pad_id=0)
    with torch.no_grad():
        packed = model(input_ids=rows.input_ids, position_ids=rows.position_ids, attention_mask=rows.attention).logits
        alone = [model(input_ids=torch.tensor([example.ids])).logits[0] for example in EXAMPLES]
    torch.testing.assert_close(packed[0, :7], alone[2], rtol=0, atol=1e-5)
    torch.testing.assert_close(packed[0, 7:], alone[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(packed[1, :5], alone[0], rtol=0, atol=1e-5)
    assert packed.isfinite().all()
    losses = [
        cross_entropy(logits[e.prompt_length - 1 : -1], torch.tensor(e.ids[e.prompt_length :]), reduction="sum")
        for logits, e in zip(alone, EXAMPLES, strict=True)
    ]
    count = sum(len(e.ids) - e.prompt_length for e in EXAMPLES)
    mean = cross_entropy(packed.flatten(0, 1), rows.targets.flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(mean, sum(losses) / count, rtol=1e-5, atol=0)


def test_a_sequence_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="7 tokens does not fit into a row of 6"):
        pack(EXAMPLES, width=6, pad_id=0)
