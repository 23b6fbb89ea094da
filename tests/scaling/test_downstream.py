"""The correlation of a downstream task with the held-out curve: by hand, in the report, and when there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scalerl_mini.scaling import fit, read_curve
from scalerl_mini.scaling.downstream import agreement
from scalerl_mini.scaling.output import as_dict, to_json
from scalerl_mini.scaling.report import report


def rows(held_out: list[float], downstream: list[object]) -> list[dict[str, object]]:
    pairs = zip(held_out, downstream, strict=True)
    return [{"pass_rate": a, "downstream_pass_rate": b} for a, b in pairs]


def test_by_hand() -> None:
    # deviations -2, -1, 3 and -1, -1, 2: 9 / sqrt(14 x 6). Ranks 1, 2, 3 and 1.5, 1.5, 3: 1.5 / sqrt(2 x 1.5)
    found = agreement(rows([0.1, 0.2, 0.6], [0.0, 0.0, 0.3]))
    assert found is not None
    assert (found.n, found.first, found.last) == (3, 0.0, 0.3)
    assert found.pearson == pytest.approx(9 / (14 * 6) ** 0.5)
    assert found.spearman == pytest.approx(1.5 / 3**0.5)
    assert found.changes is None  # two changes always lie on a line
    assert str(found) == ("0.000 to 0.300; with the held-out pass rate: Pearson 0.98, Spearman 0.87, changes - (n = 3)")


def test_two_rising_curves_need_not_move_together() -> None:
    """Both rise all the way, one slowing down where the other speeds up: values agree, changes do not."""
    found = agreement(rows([0.1, 0.4, 0.6, 0.7], [0.1, 0.2, 0.4, 0.7]))
    assert found is not None
    assert found.spearman == pytest.approx(1.0)
    assert found.pearson is not None
    assert found.pearson > 0.8
    assert found.changes == pytest.approx(-1.0)


def test_what_cannot_be_correlated() -> None:
    assert agreement(rows([0.1, 0.2], [0.1, 0.2])) is None
    assert agreement([{"pass_rate": 0.1}] * 5) is None
    assert agreement(rows([0.1, 0.2, 0.3, 0.4], [0.1, None, "x", 0.2])) is None
    never = agreement(rows([0.1, 0.2, 0.3, 0.4], [0.0] * 4))
    assert never is not None
    assert (never.pearson, never.spearman, never.changes) == (None, None, None)


def test_a_run_with_a_downstream_task_is_reported_with_it(tmp_path: Path) -> None:
    compute = [0, 1, 2, 4, 8, 16, 32, 64]
    held_out = [0.1, 0.15, 0.25, 0.4, 0.55, 0.65, 0.7, 0.72]
    lines = [
        {"step": c, "generated_tokens": c, "pass_rate": r, "pass_rate_stderr": 0.01, "downstream_pass_rate": r**2,
         "downstream_pass_rate_stderr": 0.03}
        for c, r in zip(compute, held_out, strict=True)
    ]  # fmt: skip
    (tmp_path / "evals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = read_curve(tmp_path)
    assert curve.y == "pass_rate"
    fitted = fit(curve)
    assert "downstream    0.010 to 0.518; with the held-out pass rate: Pearson 0.9" in report(fitted)
    record = json.loads(to_json(as_dict(fitted)))["downstream"]
    assert record["spearman"] == pytest.approx(1.0)
    assert record["n"] == 8
    other = read_curve(tmp_path, y="downstream_pass_rate")
    assert (other.r0, other.r0_sd) == (pytest.approx(0.01), 0.03)
    for line in lines:
        del line["downstream_pass_rate"]
    (tmp_path / "evals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_curve(tmp_path).downstream is None
    assert "downstream    " not in report(fit(read_curve(tmp_path)))
