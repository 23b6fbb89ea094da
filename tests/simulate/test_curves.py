import json

import numpy as np
import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import read_curve
from simulate.curves import Spec, ar1, eval_sd, law_value, simulate_curve
from simulate.faults import FAULTS
from simulate.files import write_curves


def one(seed=0, **options):
    return simulate_curve(Spec(**options), np.random.default_rng(seed))


def test_clean_curve_is_the_law():
    run = one(R0=0.3, A=0.61, B=1.92, C_mid=2542.0, n=40, ratio=4.0, sigma=0.0, r0_samples=0)
    assert run.compute[-1] == pytest.approx(4 * 2542.0)
    expected = 0.3 + 0.31 / (1 + (2542.0 / run.compute) ** 1.92)
    np.testing.assert_allclose(run.score, expected, atol=1e-12)
    assert run.curve.r0 is None


def test_noise_has_the_stated_size_and_correlation():
    noise = ar1(np.random.default_rng(0), 40000, 0.6)
    assert np.std(noise) == pytest.approx(1.0, abs=0.02)
    assert np.corrcoef(noise[1:], noise[:-1])[0, 1] == pytest.approx(0.6, abs=0.01)
    run = one(3, sigma=0.004, phi=0.0, n=4000, ratio=4.0)
    assert np.std(run.score[1:] - run.truth.clean) == pytest.approx(0.004, rel=0.05)


def test_evaluation_noise_is_binomial_within_prompts():
    """1000 prompts x 16 samples: .002-.003, four times as noisy with a sixteenth of the samples."""
    assert 0.002 < eval_sd(0.5, 1000, 16) < 0.0035
    assert eval_sd(0.5, 250, 4) == pytest.approx(4 * eval_sd(0.5, 1000, 16))


def test_the_start_model_is_measured_with_its_own_error():
    errors = [one(s, R0=0.3).curve.r0 - 0.3 for s in range(300)]
    assert np.std(errors) == pytest.approx(eval_sd(0.3, 1000, 16), rel=0.15)
    assert one(0).compute[0] == 0.0


def test_fixing_one_value_leaves_the_others_as_they_were():
    a, b = one(5).truth, one(5, B=3.0).truth
    assert (a.R0, a.A, a.C_mid) == (b.R0, b.A, b.C_mid)
    assert b.B == 3.0


def test_same_seed_same_curve():
    np.testing.assert_array_equal(one(7).score, one(7).score)
    assert not np.array_equal(one(7).score, one(8).score[: len(one(7).score)])


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_do_what_their_name_says(fault):
    base = {"n": 60, "ratio": 3.0, "sigma": 0.004, "phi": 0.0, "r0_samples": 0}
    clean, broken = one(1, **base), one(1, faults=(fault,), **base)
    c, b = clean.truth.clean, broken.truth.clean
    change = {
        "transient": lambda: b[0] < c[0] - 0.01 and abs(b[-1] - c[-1]) < 1e-3,
        "outliers": lambda: np.abs(broken.score - c).max() > 5 * 0.004 * 0.999,
        "gaps": lambda: len(broken.curve) == 36,
        "repeats": lambda: len(broken.compute) > 62 and len(broken.curve) == 60,
        "collapse": lambda: b[-1] < c[-1] - 0.04 and np.array_equal(b[:40], c[:40]),
        "second_phase": lambda: b[-1] > c[-1] + 0.008,
        "step": lambda: set(np.round(b - c, 9)) == {0.0, 0.02},
        "drift": lambda: np.allclose(b - c, -0.03 * clean.compute / clean.compute[-1]),
        "fresh_prompts": lambda: np.std(broken.score - b) > 2 * np.std(clean.score - c),
        "noisy_start": lambda: np.abs(broken.score - b)[:10].mean() > 1.5 * np.abs(clean.score - c)[:10].mean(),
    }
    assert change[fault]()


def test_power_law_agrees_with_the_sigmoid_far_out():
    far = np.array([3e5, 1e6])
    np.testing.assert_allclose(
        law_value("power", far, 0.3, 0.6, 2.0, 3e3), law_value("sigmoid", far, 0.3, 0.6, 2.0, 3e3), atol=1e-4
    )


@pytest.mark.parametrize("bad", [{"law": "linear"}, {"faults": ("gremlins",)}])
def test_unknown_laws_and_faults_are_refused(bad):
    with pytest.raises(UserError, match="choose from"):
        Spec(**bad)


@pytest.mark.parametrize(
    "bad", [{"phi": 1.0}, {"sigma": float("nan")}, {"ratio": 0.0}, {"n": 10**11}, {"R0": 0.5, "A": 0.2}, {"B": -1.0}]
)
def test_values_that_no_run_has_are_refused(bad):
    with pytest.raises(UserError, match=r"needs|above"):
        Spec(**bad)


@pytest.mark.parametrize("given", [{"A": 0.1}, {"R0": 0.95}])
def test_what_is_drawn_agrees_with_what_is_given(given):
    assert all(one(s, **given).truth.A > one(s, **given).truth.R0 for s in range(20))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_files_read_back_as_the_curves_with_the_truth_beside_them(tmp_path, kind):
    paths = write_curves(tmp_path / "runs", Spec(n=20), 3, seed=4, kind=kind)
    truth = json.loads((tmp_path / "runs" / "truth.json").read_text())["runs"]
    for i, path in enumerate(paths):
        direct = simulate_curve(Spec(n=20), np.random.default_rng([4, i]))
        curve = read_curve(path)
        np.testing.assert_allclose(curve.score, direct.curve.score, atol=1e-6)
        assert curve.r0 == pytest.approx(direct.curve.r0, abs=1e-6)
        assert truth[path.name]["A"] == direct.truth.A
        assert len(truth[path.name]["clean"]) == 20


def test_a_used_folder_is_refused(tmp_path):
    (tmp_path / "old").write_text("")
    with pytest.raises(UserError, match="not empty"):
        write_curves(tmp_path, Spec(), 1, 0)
