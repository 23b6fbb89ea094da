import numpy as np
import pytest
from scipy.optimize import curve_fit

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.paper_grid import PAPER_A, PAPER_C_MID, a_values, c_mid_values, paper_grid
from tests.scaling.synthetic import noisy, noisy_curve


def law_of_b(r0, a, c_mid):
    return lambda c, b: r0 + (a - r0) / (1.0 + (c_mid / c) ** b)


def literal_loop(compute, score, r0, a_grid, c_mid_grid):
    """The paper's words as code: curve_fit over B alone, at its default start, for every pair."""
    best = (np.inf, None, None)
    for a in a_grid:
        for c_mid in c_mid_grid:
            model = law_of_b(r0, a, c_mid)
            (b,), _ = curve_fit(model, compute, score)
            sse = float(np.sum((model(compute, b) - score) ** 2))
            if sse < best[0]:
                best = (sse, a, c_mid)
    return best


def test_the_printed_grids():
    assert (PAPER_A[0], PAPER_A[-1], len(PAPER_A)) == (0.45, 0.8, 71)
    assert (PAPER_C_MID[0], PAPER_C_MID[-1], len(PAPER_C_MID)) == (100.0, 40000.0, 100)


@pytest.mark.parametrize("seed", range(6))
def test_same_cell_as_the_literal_loop(seed):
    compute, score = noisy(seed, ratio=2.0 + seed / 2, n=20 + 5 * seed)
    a_grid, c_mid_grid = PAPER_A[16:46:3], tuple(np.linspace(100, 4000, 40)[15:])
    mine = paper_grid(Curve.of(compute, score), 0.3, a_grid, c_mid_grid)
    sse, a, c_mid = literal_loop(compute, score, 0.3, a_grid, c_mid_grid)
    assert (mine.A, mine.C_mid) == (a, c_mid)
    assert mine.sse == pytest.approx(sse, rel=1e-9)


def test_grid_is_near_the_exact_fit_and_never_below_it():
    curve = noisy_curve(3, ratio=4.0)
    grid = paper_grid(curve, 0.3, c_mid_grid=tuple(np.linspace(100, 6000, 100)))
    exact = fit(curve, cutoff=0.0, r0=0.3)
    assert grid.sse >= exact.surface.exact.sse[0] * (1 - 1e-9)
    assert pytest.approx(exact.A, abs=0.02) == grid.A


def test_as_a_fit_it_needs_r0_and_says_that_it_has_no_interval():
    curve = noisy_curve(3)
    with pytest.raises(UserError, match="does not fit R_0"):
        fit(curve, method="paper-grid")
    result = fit(curve, method="paper-grid", r0=0.3)
    assert result.intervals["A"] is None
    assert "without intervals" in result.reason


def test_a_grid_that_memory_could_not_hold_is_refused():
    with pytest.raises(UserError, match="too many"):
        fit(noisy_curve(3), method="paper-grid", r0=0.3, c_mid_grid=tuple(np.linspace(1, 9, 10_000)))


def test_unknown_laws_and_methods_are_refused():
    for bad in ({"law": "linear"}, {"method": "magic"}):
        with pytest.raises(UserError, match="choose"):
            fit(noisy_curve(3), **bad)


def test_grid_options():
    assert a_values("0.5:0.52:0.01") == (0.5, 0.51, 0.52)
    assert c_mid_values("1:3:3") == (1.0, 2.0, 3.0)
    for function, text in (
        (a_values, "1:2"),
        (a_values, "0.5:0.4:0.1"),
        (c_mid_values, "0:3:3"),
        (c_mid_values, "x:1:2"),
        (c_mid_values, "1:inf:3"),
        (a_values, "0.1:0.9:1e-9"),
    ):
        with pytest.raises(UserError, match="grid"):
            function(text)
