import numpy as np
import pytest
from scipy.optimize import least_squares

from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.grid import mid_limits
from scalerl_mini.scaling.laws import LAWS
from scalerl_mini.scaling.normal import Box, whiten
from scalerl_mini.scaling.polish import LOG_B_LIMITS, Problem, evaluate, polish
from tests.scaling.synthetic import noisy, sigmoid


def reference_sse(compute, score, truth):
    """Least sum of squares by scipy, started at the truth, with the same bounds."""
    x = np.log(compute)
    low, high = mid_limits(x)

    def residual(p):
        return sigmoid(compute, p[0], p[1], np.exp(p[2]), np.exp(p[3])) - score

    bounds = ([0, 0, LOG_B_LIMITS[0], low], [1, 1, LOG_B_LIMITS[1], high])
    start = (truth["r0"], truth["a"], np.log(truth["b"]), np.log(truth["c_mid"]))
    return 2 * least_squares(residual, start, bounds=bounds, xtol=1e-15, ftol=1e-15, gtol=1e-15).cost


@pytest.mark.slow
def test_never_worse_than_least_squares_from_the_truth():
    rng = np.random.default_rng(5)
    checked = 0
    for seed in range(260):
        truth = {"r0": rng.uniform(0.05, 0.5), "b": rng.uniform(1, 2.6), "c_mid": rng.uniform(1e3, 1e4)}
        truth["a"] = truth["r0"] + rng.uniform(0.1, 0.4)
        options = {
            "n": int(rng.integers(14, 64)),
            "ratio": np.exp(rng.uniform(0, np.log(8))),
            "sigma": rng.uniform(0.003, 0.012),
        }
        compute, score = noisy(seed, **truth, **options)
        result = fit(Curve.of(compute, score), cutoff=0.0, r0="free")
        if result.surface is None:
            continue
        checked += 1
        assert result.surface.exact.sse[0] <= reference_sse(compute, score, truth) * (1 + 1e-9)
    assert checked > 240


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("box", [Box(-1.0, 2.0), Box(-0.12, 0.05)], ids=["free", "bounds active"])
def test_gradient_of_the_projected_problem_is_the_numerical_one(law, box):
    """At active bounds too: the sum of squares moves as g says when the shape moves and the linear part follows."""
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 3.0, 15)
    y = np.array([0.3 * law.rise(1.5 * (x - 1.5)) - 0.15 + 0.01 * rng.normal(size=15)])
    problem = Problem(x, y, law, box, (-1.5, 6.2), 0.0, 0.0, np.array([0.4]))

    def sse(log_b, mid):
        return float(evaluate(problem, np.array([log_b]), np.array([mid])).sse[0])

    at = evaluate(problem, np.array([0.3]), np.array([1.2]))
    h = 1e-6
    numeric = ((sse(0.3 + h, 1.2) - sse(0.3 - h, 1.2)) / (2 * h), (sse(0.3, 1.2 + h) - sse(0.3, 1.2 - h)) / (2 * h))
    np.testing.assert_allclose([-2 * at.g[0][0], -2 * at.g[1][0]], numeric, rtol=1e-5, atol=1e-8)


def test_whitened_problem_minimises_the_whitened_sum():
    compute, score = noisy(3, phi=0.6)
    x, shift = np.log(compute), score.mean()
    problem = Problem(
        x, score[None] - shift, LAWS["sigmoid"], Box(-shift, 1 - shift), mid_limits(x), 0.0, 0.0, np.array([0.6])
    )
    best = polish(problem, np.array([0.5]), np.array([np.log(3000.0)]))

    def residual(p):
        return whiten((sigmoid(compute, p[0], p[1], np.exp(p[2]), np.exp(p[3])) - score)[None], 0.6)[0]

    reference = least_squares(residual, (0.3, 0.6, 0.6, 8.0), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert best.sse[0] == pytest.approx(2 * reference.cost, rel=1e-9)
