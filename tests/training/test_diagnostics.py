"""What a run's logs say beside its curve: by hand from rows and counts, and never the reason why a run ends badly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.training.diagnostics import TAIL, diagnose
from scalerl_mini.training.row_log import append_row

COUNTS: dict[str, Any] = {
    "seen_positive": 200, "clipped_positive": 10, "seen_negative": 50, "clipped_negative": 1,
    "tokens": [{"token": 5, "text": "+", "seen_positive": 30, "clipped_positive": 9, "seen_negative": 10,
                "clipped_negative": 1}],
}  # fmt: skip


def write_run(folder: Path, truncation: float = 0.0) -> None:
    """2 x TAIL steps: entropy 0.4 in the first half and 0.1 in the second, one step of the second without a loss."""
    for step in range(2 * TAIL):
        late = step >= TAIL
        row = {
            "truncation_rate": truncation * late,
            "entropy": 0.1 if late else 0.4,
            "mismatch_kl": 1e-3,
            "lag_mean": 2.0,
        }
        if step == 2 * TAIL - 1:
            row |= {"entropy": None, "mismatch_kl": None, "lag_mean": 0.0}
        append_row(folder / "steps.jsonl", {"step": step + 1, **row})
    (folder / "clipped_tokens.json").write_text(json.dumps(COUNTS))


def test_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path, truncation=0.04)
    found = diagnose(tmp_path)
    assert found is not None
    assert (found.clipped_positive, found.clipped_negative) == (0.05, 0.02)
    assert found.most_clipped == (("+", 0.25),)
    assert (found.truncation, found.truncation_most) == (pytest.approx(0.04), 0.04)
    # the last TAIL steps with a loss: one of the first half, the rest of the second
    assert found.entropy == pytest.approx((0.4, (0.4 + (TAIL - 1) * 0.1) / TAIL))
    assert found.mismatch == pytest.approx((1e-3, 1e-3))
    assert found.lag == pytest.approx(2.0 * (2 * TAIL - 1) / (2 * TAIL))
    clipped, rest = found.lines()
    assert clipped == ("clipped: 5.00% of the tokens of good completions, 2.00% of bad ones; most often '+' 25.0%")
    assert rest.startswith("truncated: 4.0% of completions at the end, 4.0% in the worst step; entropy 0.4 to 0.1")


def test_many_truncations_at_the_end_are_warned_of(tmp_path: Path) -> None:
    write_run(tmp_path, truncation=0.101)
    found = diagnose(tmp_path)
    assert found is not None
    assert "precede instability" in found.lines()[-1]


def test_a_run_without_steps_or_counts(tmp_path: Path) -> None:
    assert diagnose(tmp_path) is None
    write_run(tmp_path)
    (tmp_path / "clipped_tokens.json").unlink()
    found = diagnose(tmp_path)
    assert found is not None
    assert (found.clipped_positive, found.most_clipped) == (None, ())
    assert found.lines()[0] == "clipped: - of the tokens of good completions, - of bad ones"
