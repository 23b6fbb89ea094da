import numpy as np
import pytest

from scalerl_mini.errors import UserError
from simulate.cells import cells_of
from simulate.curves import Spec
from simulate.scoring import Cell, score
from simulate.table1 import table1, text
from simulate.tables import plot_coverage, table
from simulate.validation import summarise, validate

EASY = Spec(phi=0.3, sigma_range=(0.003, 0.006), ratio_range=(2.0, 6.0), n_range=(25, 60))


@pytest.mark.slow
def test_same_table_whatever_the_number_of_workers():
    cells = [Cell(EASY, robust=True), Cell(EASY, r0="measured", rivals=True, pairs=True)]
    assert validate(cells, 24, seed=3, workers=1) == validate(cells, 24, seed=3, workers=2)


def test_progress_is_told_and_another_seed_is_another_table():
    done = []
    first = validate([Cell(EASY)], 21, seed=1, workers=1, said=done.append)
    assert sum(done) == 21
    assert first != validate([Cell(EASY)], 21, seed=2, workers=1)


def test_a_record_depends_on_its_seed_alone():
    assert score(Cell(EASY), (0, 1, 2)) == score(Cell(EASY), (0, 1, 2))
    assert score(Cell(EASY), (0, 1, 2)) != score(Cell(EASY), (0, 1, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("phi", "r0"), [(0.0, "free"), (0.5, "free"), (0.5, "measured"), (0.8, "free")])
def test_nominal_90_percent_intervals_hold(phi, r0):
    """A smoke test of the calibration: 200 curves, so 90 % +- 5 (docs/fitting.md has the table of 1000)."""
    spec = Spec(phi=phi, sigma_range=(0.003, 0.01), ratio_range=(1.0, 8.0), n_range=(16, 75))
    (row,) = validate([Cell(spec, r0=r0)], 200, seed=11, workers=1)
    low = 0.80 if phi == 0.8 else 0.85
    assert low <= row["A_coverage"] <= 0.97
    assert low <= row["R2x_coverage"] <= 0.975


def test_summary_of_made_up_records():
    base = {"status": "ok", "flags": [], "A_true": 0.6}
    records = [
        {**base, "verdict": "identified", "A_error": 0.01, "A_covered": True, "A_width": 0.02},
        {**base, "verdict": "identified", "A_error": -0.03, "A_covered": False, "A_width": 0.04, "flags": ["misfit"]},
        {"status": "collapse", "verdict": "unidentified", "flags": [], "A_true": 0.6},
    ]
    row = summarise(records)
    assert (row["curves"], row["fitted"]) == (3, 2)
    assert row["A_coverage"] == 0.5
    assert row["A_bias"] == pytest.approx(-0.01)
    assert row["A_p50"] == pytest.approx(0.02)
    assert row["identified_within_02"] == 0.5
    assert row["flag_misfit"] == pytest.approx(1 / 3)
    assert row["status_collapse"] == pytest.approx(1 / 3)


def test_wrong_winners_are_counted():
    base = {"status": "ok", "verdict": "weak", "flags": []}
    pairs = [(0.05, 0.04, 0.99), (0.05, -0.03, 0.03), (-0.01, 0.001, 0.6)]
    records = [{**base, "pair_true": t, "pair_estimate": e, "pair_p": p} for t, e, p in pairs]
    row = summarise(records)
    assert row["rule_02_called"] == pytest.approx(2 / 3)
    assert row["rule_02_wrong"] == 0.5
    assert row["rule_p95_wrong"] == 0.5


def test_cells_are_all_combinations():
    cells = cells_of(phis=(0.0, 0.5), r0s=("free",), counts=("20", "8-15"), faults=("none", "drift+gaps"))
    assert len(cells) == 8
    assert {c.spec.n_range for c in cells} == {(20, 20), (8, 15)}
    assert {c.spec.faults for c in cells} == {(), ("drift", "gaps")}
    assert len(cells_of()) == 8


@pytest.mark.parametrize("bad", ["x", "20-10", "0"])
def test_bad_ranges_are_refused(bad):
    with pytest.raises(UserError, match="--n"):
        cells_of(counts=(bad,))


def test_table_and_figure(tmp_path):
    rows = validate([Cell(EASY), Cell(EASY, r0="measured")], 8, workers=1)
    text = table(rows)
    assert "8 curves a cell" in text
    assert "measured" in text
    assert len(text.splitlines()) == 4
    assert plot_coverage(rows, tmp_path / "c.svg").stat().st_size > 5000


def test_rivals_are_scored_on_the_same_points():
    record = score(Cell(EASY, rivals=True), (0, 0, 5))
    assert np.isfinite(record["power_A_error"])
    assert abs(record["paper_A_error"]) < 0.2


def test_table_1_forecasts_the_end_of_its_runs():
    rows = table1(3, seed=1, workers=1)
    assert len(rows) == 10
    assert {r["run"] for r in rows} >= {"ScaleRL 8B", "Scout 17Bx16"}
    assert text(rows).count("\n") == 10
    assert np.median([r["R2x_p50"] for r in rows]) < 0.02
