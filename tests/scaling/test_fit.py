import json

import numpy as np
import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.confidence import distribution
from scalerl_mini.scaling.held import CEILING
from tests.scaling.synthetic import noisy, noisy_curve, sigmoid

TRUTH = {"r0": 0.32, "a": 0.61, "b": 1.92, "c_mid": 2542.0}


@pytest.mark.parametrize("ratio", [0.8, 2.0, 6.0])
def test_noise_free_curves_are_recovered_to_1e_6(ratio):
    compute = TRUTH["c_mid"] * ratio * np.arange(1, 41) / 40
    result = fit(Curve.of(compute, sigmoid(compute, **TRUTH)), cutoff=0.0)
    assert result.status == "ok"
    assert pytest.approx(0.61, abs=1e-6) == result.A
    assert pytest.approx(0.32, abs=1e-6) == result.R0
    assert pytest.approx(1.92, rel=1e-6) == result.B
    assert result.C_mid == pytest.approx(2542.0, rel=1e-6)


def test_unit_of_compute_does_not_matter():
    compute, score = noisy(1)
    plain = fit(Curve.of(compute, score))
    for factor in (1e-9, 3600.0, 1e18):
        other = fit(Curve.of(compute * factor, score))
        assert pytest.approx(plain.A, abs=1e-8) == other.A
        assert pytest.approx(plain.B, rel=1e-7) == other.B
        assert other.C_mid == pytest.approx(plain.C_mid * factor, rel=1e-7)
        np.testing.assert_allclose(other.intervals["A"], plain.intervals["A"], atol=1e-5)
        np.testing.assert_allclose(np.divide(other.intervals["C_mid"], factor), plain.intervals["C_mid"], rtol=1e-4)


def test_percent_is_the_same_curve():
    compute, score = noisy(1)
    plain, percent = fit(Curve.of(compute, score)), fit(Curve.of(compute, 100 * score))
    assert pytest.approx(plain.A, abs=1e-9) == percent.A


def test_intervals_widen_with_the_level_and_hold_the_estimate():
    curve = noisy_curve(2)
    low, middle, high = (fit(curve, level=level) for level in (0.5, 0.9, 0.98))
    for name in ("A", "B", "C_mid"):
        value = getattr(middle, name)
        spans = [f.intervals[name] for f in (low, middle, high)]
        assert spans[2][0] <= spans[1][0] <= spans[0][0] <= value <= spans[0][1] <= spans[1][1] <= spans[2][1]


def test_interval_of_the_ceiling_is_never_narrower_than_a_hundredth_each_side():
    result = fit(noisy_curve(4, sigma=0.0005, ratio=8.0))
    low, high = result.intervals["A"]
    assert low <= result.A - 0.01 + 1e-12
    assert high >= result.A + 0.01 - 1e-12


def test_unidentified_ceiling_has_no_value_but_a_forecast():
    result = fit(noisy_curve(3, ratio=0.5, sigma=0.01))
    assert (result.status, result.verdict) == ("ok", "unidentified")
    assert result.A is None
    assert result.B is None
    assert "below_c_mid" in result.flags or "unbounded_above" in result.flags
    value, (low, high) = result.at(2 * result.last)
    assert low <= value <= high
    assert high - low < 0.35


def test_a_measured_r0_narrows_the_ceiling():
    ratios, errors = [], []
    for seed in range(40):
        compute, score = noisy(seed, ratio=2.0, r0=0.3, a=0.6)
        free, known = fit(Curve.of(compute, score)), fit(Curve.of(compute, score, r0=0.301, r0_sd=0.003))
        ratios.append(np.ptp(known.intervals["A"]) / np.ptp(free.intervals["A"]))
        errors.append(known.value(1e12) - 0.6)
    assert known.r0_mode == "soft"
    assert np.median(ratios) < 0.8
    assert np.median(np.abs(errors)) < 0.015


def test_a_contradicted_r0_is_set_free_and_said():
    compute, score = noisy(5, ratio=3.0, sigma=0.003)
    result = fit(Curve.of(compute, score, r0=0.1, r0_sd=0.003))
    assert result.r0_mode == "free"
    assert "r0_freed" in result.flags
    assert pytest.approx(fit(Curve.of(compute, score)).A, abs=1e-9) == result.A


def test_a_given_r0_is_kept_exactly():
    result = fit(noisy_curve(6), r0=0.31)
    assert pytest.approx(0.31, abs=1e-6) == result.R0
    assert result.r0_mode == "fixed"


def test_first_needs_a_measured_r0():
    with pytest.raises(UserError, match="compute 0"):
        fit(noisy_curve(6), r0="first")


@pytest.mark.parametrize(
    "bad",
    [
        *({"level": 1.0}, {"cutoff": 1.0}, {"r0": "last"}, {"r0": 1.5}, {"min_compute": np.nan}),
        *({"max_compute": -1.0}, {"min_compute": 9.0, "max_compute": 5.0}, {"method": "paper-grid", "r0": np.nan}),
        {"law": "power", "method": "paper-grid"},
    ],
)
def test_impossible_options_are_refused(bad):
    with pytest.raises(UserError):
        fit(noisy_curve(6), **bad)


def test_cutoff_as_share_and_in_compute():
    curve = noisy_curve(7, n=40, ratio=4.0)
    assert fit(curve, cutoff=0.1).n_used == 37  # the 10 % point itself is kept
    assert fit(curve, min_compute=3000.0).n_used == 31
    assert fit(curve, cutoff=0.0, max_compute=6000.0).n_used == 20


def test_outliers_are_flagged_and_pulled_in():
    compute, score = noisy(8, ratio=4.0)
    spoiled = score.copy()
    spoiled[[15, 37]] += (0.06, 0.07)
    result = fit(Curve.of(compute, spoiled))
    assert "outliers" in result.flags
    clean, plain = fit(Curve.of(compute, score)), fit(Curve.of(compute, spoiled), robust=False)
    assert abs(result.A - clean.A) < 0.5 * abs(plain.A - clean.A)


def test_gain_is_tighter_than_two_points():
    result = fit(noisy_curve(9, ratio=3.0))
    far = 3 * result.last
    _, (low, high) = result.gain(far)
    (_, at_far), (_, at_now) = result.at(far), result.at(result.last)
    assert high - low < (at_far[1] - at_far[0]) + (at_now[1] - at_now[0])
    assert result.prob_gain(far, low) > 0.9
    assert result.prob_gain(far, high) < 0.1


def test_probability_of_a_gain_falls_with_the_gain():
    result = fit(noisy_curve(9, ratio=2.0))
    p = [result.prob_gain(2 * result.last, d) for d in (0.0, 0.01, 0.03, 0.1, 0.5)]
    assert p == sorted(p, reverse=True)
    assert p[0] > 0.95
    assert p[-1] < 0.01


def test_compute_for_inverts_the_curve():
    result = fit(noisy_curve(10, ratio=4.0))
    target = 1.5 * result.last
    compute, (low, high) = result.compute_for(result.value(target))
    assert compute == pytest.approx(target, rel=1e-9)
    assert low < compute < high
    assert result.compute_for(0.99)[0] is None


def test_form_robust_interval_holds_the_sigmoids():
    result = fit(noisy_curve(12, ratio=2.5))
    low, high = result.distribution(CEILING).interval()
    wide = result.distribution(CEILING, robust=True).interval()
    assert wide[1] - wide[0] > high - low
    assert set(result.forms) == {"sigmoid", "gompertz", "stretched"}


def test_printed_intervals_of_a_ceiling_are_never_too_narrow_and_stay_below_the_cap():
    for options in ({"sigma": 0.0005, "ratio": 8.0}, {"a": 1.0, "r0": 0.5, "sigma": 0.01, "ratio": 5.0}):
        result = fit(noisy_curve(4, **options))
        for low, high in (result.intervals["A"], result.robust_ceiling()):
            assert low <= result.asymptote - 0.01 + 1e-12
            assert min(result.asymptote + 0.01, 1.0) - 1e-12 <= high <= 1.0


def test_a_curve_of_very_many_points_is_averaged_and_says_so():
    result = fit(noisy_curve(5, n=20_000, sigma=0.02, ratio=3.0))
    assert 850 < result.n_used <= 1000
    assert any("averaged in groups of 20" in note for note in result.curve.notes)
    assert "early_transient" not in result.flags
    assert pytest.approx(0.6, abs=0.01) == result.A


def test_json_is_strict_and_has_the_agreed_keys():
    def refuse(text):
        raise AssertionError(f"{text} in JSON")

    for curve in (noisy_curve(1), noisy_curve(3, ratio=0.4, sigma=0.02), Curve.of([1, 2], [0.1, 0.2])):
        found = json.loads(fit(curve).to_json(), parse_constant=refuse)
        agreed = "status verdict A B C_mid R0 intervals form_robust forecast flags n n_used x y cutoff level"
        assert set(agreed.split()) <= set(found)
        assert set(found["intervals"]) == {"A", "B", "C_mid"}


def test_distribution_is_a_distribution():
    surface = fit(noisy_curve(13)).surface
    d = distribution(surface, CEILING)
    assert np.all(np.diff(d.values) > 0)
    assert np.all(np.diff(d.cdf) >= 0)
    assert d.cdf[0] < 0.02
    assert d.quantile(0.3) < d.quantile(0.7)
    assert d.above(d.quantile(0.3)) == pytest.approx(0.7, abs=1e-6)
