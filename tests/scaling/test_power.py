import numpy as np
import pytest
from scipy.optimize import least_squares

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Curve
from scalerl_mini.scaling.power import aicc, fit_power
from tests.scaling.synthetic import noisy


def test_recovers_a_power_law():
    compute = np.linspace(1e3, 4e4, 40)
    result = fit_power(Curve.of(compute, 0.7 - 30.0 * compute**-0.6))
    assert pytest.approx((0.7, 0.6, 30.0), rel=1e-5) == (result.A, result.B, result.D)


def test_reaches_the_least_squares_optimum():
    for seed in range(8):
        compute, score = noisy(seed, ratio=6.0)
        mine = fit_power(Curve.of(compute, score))
        x = compute / compute.mean()

        def residual(p, x=x, score=score):
            return p[0] - p[1] * x ** -p[2] - score

        bounds = ([0, 0, 0.01], [1, 9, 8])
        best = min(2 * least_squares(residual, (0.6, 0.1, b), bounds=bounds).cost for b in (0.3, 1.0, 2.0))
        assert mine.sse <= best * (1 + 1e-6)


def test_the_trap_first_halves_of_sigmoids_run_to_the_cap():
    """The paper's own A = 1.0 episode: on a first half (1 C_mid) the power law is off by more than .1 almost always."""
    off = [abs(fit_power(Curve.of(*noisy(seed, ratio=1.0, sigma=0.004))).A - 0.6) > 0.1 for seed in range(60)]
    assert np.mean(off) > 0.9


def test_too_few_points_and_aicc():
    with pytest.raises(UserError, match="needs 4"):
        fit_power(Curve.of([1, 2, 3], [0.1, 0.2, 0.3]))
    assert aicc(1.0, 5, 4) == float("inf")
    assert aicc(1e-3, 40, 4) < aicc(2e-3, 40, 4)
