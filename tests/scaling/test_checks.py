import numpy as np
import pytest

from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.checks import collapse, difference_noise
from tests.scaling.synthetic import noisy, noisy_curve

# MATH-500 accuracy in percent of public runs of a small model that rise at once and then fall (steps 1, 50, 100, ...).
FALLING = {
    "no KL": [15.6, 46.2, 43.4, 42.8, 44.2, 41.2, 37.0, 38.0, 38.0, 33.6, 33.0],
    "clipped": [15.6, 45.2, 45.6, 41.8, 42.4, 41.6, 42.4, 41.0, 41.8, 39.4, 41.6],
    "KL, to zero": [15.6, 40.8, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("name", FALLING)
def test_falling_runs_are_refused(name):
    score = FALLING[name]
    result = fit(Curve.of(np.maximum(np.arange(len(score)) * 50.0, 1.0), score))
    assert result.status in ("collapse", "no_rise")
    assert result.verdict == "unidentified"
    assert result.A is None


@pytest.mark.parametrize("n", range(6))
def test_too_few_points_is_a_status(n):
    result = fit(Curve.of(np.arange(1, n + 1), np.linspace(0.1, 0.5, n)))
    assert result.status == "too_few_points"
    assert str(n) in result.reason


def test_constant_scores_do_not_rise():
    assert fit(Curve.of(np.arange(1, 30), np.full(29, 0.4))).status == "no_rise"


def test_flat_noise_is_rarely_called_a_rise():
    calls = dict.fromkeys((0.0, 0.5), 0)
    for phi in calls:
        for seed in range(150):
            calls[phi] += fit(noisy_curve(seed, a=0.3001, r0=0.3, phi=phi)).status == "ok"
    assert calls[0.0] <= 4
    assert calls[0.5] <= 8


def test_a_small_true_rise_is_found():
    found = [fit(noisy_curve(seed, a=0.34, r0=0.30, n=40)).status == "ok" for seed in range(60)]
    assert np.mean(found) > 0.9


def test_late_collapse_is_found_and_a_clean_curve_is_not():
    compute, score = noisy(1, ratio=4.0)
    fallen = score - 0.12 * np.clip((compute - 0.85 * compute[-1]) / (0.15 * compute[-1]), 0, 1)
    result = fit(Curve.of(compute, fallen))
    assert result.status == "collapse"
    assert "max_compute" in result.reason
    clean = [fit(noisy_curve(seed, ratio=6.0)).status for seed in range(60)]
    assert clean == ["ok"] * 60
    peak = collapse(fallen)
    assert fit(Curve.of(compute, fallen), max_compute=compute[peak[1]]).status == "ok"


def test_difference_noise_sees_the_noise_and_not_the_curve():
    estimates = [difference_noise(noisy(seed, n=60, sigma=0.006)[1]) for seed in range(40)]
    assert np.median(estimates) == pytest.approx(0.006, rel=0.15)
    assert difference_noise(noisy(0, n=60, sigma=0.0)[1]) < 1e-4


def test_misfit_flag_on_a_jump_and_not_on_clean_curves():
    compute, score = noisy(2, sigma=0.003, n=50, ratio=3.0)
    jumped = score + 0.06 * (compute > 0.5 * compute[-1])
    flags = fit(Curve.of(compute, jumped)).flags
    assert "misfit" in flags or "autocorrelated" in flags
    clean = [set(fit(noisy_curve(seed)).flags) & {"misfit", "autocorrelated"} for seed in range(60)]
    assert sum(map(bool, clean)) <= 4


def test_steps_and_small_evals_are_flagged():
    step = fit(noisy_curve(3, b=12.0, ratio=2.0))
    assert "step_like" in step.flags
    assert "small_eval" in fit(noisy_curve(3, sigma=0.015, ratio=4.0)).flags


def test_a_transient_before_the_cutoff_is_flagged():
    compute, score = noisy(5, n=60, ratio=3.0, sigma=0.003)
    bent = score - 0.15 * np.exp(-compute / (0.05 * compute[-1]))
    assert "early_transient" in fit(Curve.of(compute, bent)).flags
    assert "early_transient" not in fit(Curve.of(compute, score)).flags
