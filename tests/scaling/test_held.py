"""The profile, point by point, against scipy with the quantity held."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.held import CEILING, HeldProblem, Quantity, least_held
from scalerl_mini.scaling.normal import whiten
from tests.scaling.synthetic import noisy, sigmoid

PHI = 0.4
FAR = 18000.0


def penalised(compute, score, quantity, value):
    """scipy's least whitened sum of squares with the quantity held at `value` by a stiff penalty."""

    def residual(p):
        at = lambda c: sigmoid(c, p[0], p[1], np.exp(p[2]), np.exp(p[3]))  # noqa: E731
        held = p[1] if np.isinf(quantity.x) else at(np.exp(quantity.x))
        held = held if quantity.base is None else held - at(np.exp(quantity.base))
        white = whiten((at(compute) - score)[None], PHI)[0]
        return np.append(white, 1e4 * (held - value))

    options = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "x_scale": (0.1, 0.1, 1, 1), "max_nfev": 4000}
    fits = [least_squares(residual, (0.3, 0.6, b, m), **options) for b, m in ((0.6, 8.0), (0.3, 8.4))]
    best = min(fits, key=lambda f: f.cost)
    return 2 * best.cost


@pytest.mark.parametrize(
    ("quantity", "values"),
    [
        (CEILING, (0.57, 0.60, 0.64, 0.75)),
        (Quantity(np.log(FAR)), (0.56, 0.58, 0.61)),
        (Quantity(np.log(FAR), np.log(9000.0)), (0.01, 0.03, 0.06)),
    ],
    ids=["ceiling", "point", "gain"],
)
def test_least_held_is_the_constrained_minimum(quantity, values):
    compute, score = noisy(11, phi=PHI)
    surface = fit(Curve.of(compute, score), cutoff=0.0).surface
    assert surface is not None
    shift = surface.problem.box.shift if quantity.base is None else 0.0
    many = len(values)
    problem = HeldProblem(surface.problem, quantity, np.full(many, PHI), np.zeros(many), np.array(values) - shift)
    sse, _, _ = least_held(problem, np.full(many, 0.6), np.full(many, 8.0), steps=60)
    for value, mine in zip(values, sse, strict=True):
        assert mine == pytest.approx(penalised(compute, score, quantity, value), rel=2e-3)


def test_a_value_outside_the_box_is_never_cheap():
    surface = fit(Curve.of(*noisy(11)), cutoff=0.0).surface
    assert surface is not None
    shift = surface.problem.box.shift
    problem = HeldProblem(surface.problem, CEILING, np.zeros(2), np.zeros(2), np.array([0.2, 0.6]) - shift)
    sse, _, _ = least_held(problem, np.full(2, 0.6), np.full(2, 8.0), steps=60)
    assert sse[0] > 100 * sse[1]
