"""The table of what the loss clipped, and the rest: means over the runs of a variant."""

from __future__ import annotations

from dataclasses import replace

from scalerl_mini.ablation.diagnosis import diagnosis_table
from scalerl_mini.training.diagnostics import Diagnostics

ONE = Diagnostics(0.02, 0.01, (("+", 0.3), ("1", 0.2), ("2", 0.1)), 0.0, 0.1, (0.4, 0.1), (1e-3, 3e-4), 3.0)


def test_a_row_a_variant_with_means_over_its_runs() -> None:
    other = replace(ONE, clipped_positive=0.04, most_clipped=(("+", 0.1), ("=", 0.1)), lag=5.0, entropy=(0.2, None))
    unclipped = replace(ONE, clipped_positive=None, clipped_negative=None, most_clipped=())
    lines = diagnosis_table({"dapo": [ONE, other], "none": [unclipped], "not run": []})
    assert lines[3:] == [
        "| dapo | 4.0 | 3.00% | 1.00% | `+` `1` `=` | 0.0% | 0.3 to 0.1 | 0.001 to 0.0003 |",
        "| none | 3.0 | - | - | - | 0.0% | 0.4 to 0.1 | 0.001 to 0.0003 |",
    ]
    assert lines[1].count("|") == lines[2].count("|") == lines[3].count("|")


def test_no_runs_no_table() -> None:
    assert diagnosis_table({"dapo": []}) == []
