import numpy as np
import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Curve, compare, fit
from scalerl_mini.scaling.compare_report import comparison_dict, comparison_report, moved
from scalerl_mini.scaling.confidence import Distribution, greater
from scalerl_mini.scaling.efficiency import at_ceiling
from scalerl_mini.scaling.knobs import differences
from scalerl_mini.scaling.output import to_json
from scalerl_mini.scaling.pooling import BETWEEN_SD, pool
from tests.scaling.synthetic import noisy_curve, sigmoid

GOOD = {"ratio": 5.0, "sigma": 0.004, "n": 50}


def normal(mean, sd):
    from scipy.special import ndtr

    values = mean + sd * np.linspace(-4, 4, 81)
    return Distribution(values, ndtr((values - mean) / sd), 0.0, 1.0)


def test_greater_is_the_normal_probability():
    from scipy.special import ndtr

    assert greater(normal(0.6, 0.01), normal(0.58, 0.02)) == pytest.approx(ndtr(0.02 / np.hypot(0.01, 0.02)), abs=0.005)
    assert greater(normal(0.6, 0.01), normal(0.6, 0.01)) == pytest.approx(0.5, abs=1e-3)


def test_two_unidentified_ceilings_are_a_toss_up():
    unknown = Distribution(np.array([0.5, 1.0]), np.array([0.0, 0.2]), 0.0, 1.0)
    assert greater(unknown, unknown) == pytest.approx(0.5)


def test_pooling_one_run_is_that_run_and_more_add_the_spread_between():
    single = pool([normal(0.6, 0.01)])
    assert single.between_sd == 0.0
    np.testing.assert_allclose(single.interval(), (0.6 - 1.645 * 0.01, 0.6 + 1.645 * 0.01), atol=5e-4)
    agreeing = pool([normal(0.6, 0.001)] * 3)
    assert 0.5 * BETWEEN_SD < agreeing.between_sd < BETWEEN_SD
    spread = pool([normal(m, 0.001) for m in (0.55, 0.60, 0.65)])
    assert 0.03 < spread.between_sd < 0.05
    assert np.ptp(spread.interval()) > 3 * np.ptp(agreeing.interval())


def test_clear_ceilings_are_told_apart():
    better, worse = fit(noisy_curve(1, a=0.60, **GOOD)), fit(noisy_curve(2, a=0.52, **GOOD))
    pair = compare({"new": [better], "old": [worse]}).pairs[0]
    assert pair.verdict(pair.p_ceiling) == "new"
    assert moved(pair) == "ceiling"
    assert pair.common_A is None


def test_equal_recipes_are_undecided():
    pair = compare({"a": [fit(noisy_curve(1, **GOOD))], "b": [fit(noisy_curve(2, **GOOD))]}).pairs[0]
    assert pair.verdict(pair.p_ceiling) == "undecided"
    assert moved(pair) == "nothing that these curves can show"


def test_equal_ceilings_different_speed_is_efficiency():
    fast = fit(noisy_curve(1, b=2.4, **GOOD))
    slow = fit(noisy_curve(2, b=1.4, ratio=6.0, sigma=0.004, n=50))
    pair = compare({"fast": [fast], "slow": [slow]}).pairs[0]
    assert moved(pair) == "efficiency"
    assert pair.B[0] > pair.B[1]
    assert pair.p_faster > 0.95


def test_an_unidentified_ceiling_leaves_efficiency_open():
    good, young = fit(noisy_curve(1, **GOOD)), fit(noisy_curve(2, ratio=0.6, sigma=0.004))
    assert young.A is None
    comparison = compare({"good": [good], "young": [young]})
    assert (comparison.pairs[0].common_A, comparison.pairs[0].B) == (None, None)
    assert "B is not comparable" in comparison_report(comparison)


def test_the_common_ceiling_is_near_the_better_known_one():
    good, poor = fit(noisy_curve(1, **GOOD)), fit(noisy_curve(5, a=0.64, ratio=2.0, sigma=0.008))
    assert np.ptp(poor.intervals["A"]) > 2 * np.ptp(good.intervals["A"])
    low, high = good.intervals["A"]
    assert low < compare({"good": [good], "poor": [poor]}).pairs[0].common_A < high


def test_crossing_is_found_near_the_true_one():
    early = fit(noisy_curve(1, a=0.55, c_mid=1500.0, ratio=8.0, sigma=0.002, n=60))
    late = fit(noisy_curve(2, a=0.65, c_mid=4000.0, ratio=4.0, sigma=0.002, n=60))
    grid = np.geomspace(500, 1e5, 20000)
    gap = sigmoid(grid, 0.3, 0.55, 1.8, 1500.0) - sigmoid(grid, 0.3, 0.65, 1.8, 4000.0)
    truth = grid[np.flatnonzero(np.diff(np.sign(gap)))[-1]]
    assert compare({"early": [early], "late": [late]}).pairs[0].crossing["0.5"] == pytest.approx(truth, rel=0.1)


def test_b_at_a_held_ceiling():
    compute = 2542.0 * 5 * np.arange(1, 51) / 50
    result = fit(Curve.of(compute, sigmoid(compute, 0.3, 0.61, 1.92, 2542.0) + 1e-4 * np.cos(compute)), cutoff=0.0)
    refit = at_ceiling(result, 0.61)
    assert pytest.approx(1.92, rel=0.02) == refit.B
    assert refit.C_mid == pytest.approx(2542.0, rel=0.02)
    assert pytest.approx(0.3, abs=0.003) == refit.R0
    low, high = refit.distribution.interval()
    assert low <= 1.92 <= high
    assert at_ceiling(result, 0.66).B < refit.B


def test_bad_input():
    good, refused = fit(noisy_curve(1)), fit(Curve.of([1, 2], [0.1, 0.2]))
    with pytest.raises(UserError, match="two recipes"):
        compare({"a": [good]})
    with pytest.raises(UserError, match="too_few_points"):
        compare({"a": [good], "b": [refused]})
    for options in ({"between_sd": -1.0}, {"between_sd": np.nan}, {"computes": [0.0]}, {"computes": [np.nan]}):
        with pytest.raises(UserError, match=r"spread|compute"):
            compare({"a": [good], "b": [good]}, **options)


def test_report_and_json():
    comparison = compare({"a": [fit(noisy_curve(s, **GOOD)) for s in (1, 3)], "b": [fit(noisy_curve(2, **GOOD))]})
    text = comparison_report(comparison, knobs={("a", "b"): {"objective.loss": ("cispo", "dapo")}})
    for part in ("2 runs", "undecided", "one run a recipe", "objective.loss 'cispo' -> 'dapo'"):
        assert part in text
    assert '"moved"' in to_json(comparison_dict(comparison))


def test_knobs_are_the_settings_that_differ(tmp_path):
    for name, loss in (("a", "cispo"), ("b", "dapo")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(f'seed = 1\n[objective]\nloss = "{loss}"\nclip = 4\n')
    assert differences(tmp_path / "a", tmp_path / "b") == {"objective.loss": ("cispo", "dapo")}
    assert differences(tmp_path / "a", tmp_path) == {}
