"""The profile, point by point, against scipy with the quantity held."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.special import stdtr

from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.confidence import distribution
from scalerl_mini.scaling.held import CEILING, HeldProblem, Quantity, least_held
from scalerl_mini.scaling.normal import whiten
from scalerl_mini.scaling.surface import PHI as PHIS
from scalerl_mini.scaling.surface import WHITE
from tests.scaling.synthetic import noisy, sigmoid

PHI = 0.4
FAR = 18000.0


def penalised(compute, score, quantity, value, phi=PHI):
    """scipy's least whitened sum of squares, 0 <= R_0 and A <= 1, with the quantity held by a stiff penalty."""

    def residual(p):
        at = lambda c: sigmoid(c, p[0], p[1], np.exp(p[2]), np.exp(p[3]))  # noqa: E731
        held = p[1] if np.isinf(quantity.x) else at(np.exp(quantity.x))
        held = held if quantity.base is None else held - at(np.exp(quantity.base))
        white = whiten((at(compute) - score)[None], phi)[0]
        return np.append(white, 1e4 * (held - value))

    options = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "x_scale": (0.1, 0.1, 1, 1), "max_nfev": 4000}
    options["bounds"] = ([0, 0, -1.6, 0], [1, 1, 2.07, 13])
    r0, a = max(score[0], 0.01), score[-1]
    fits = [least_squares(residual, (r0, a, b, m), **options) for b, m in ((0.6, 8.0), (0.3, 8.4))]
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


def test_least_held_is_exact_where_the_bound_on_r0_is_active():
    """A base model that starts at 0: R_0 >= 0 binds, and D then follows the shape."""
    compute, score = noisy(2, r0=0.0, a=0.5, ratio=1.5, sigma=0.01, n=30, b=1.2)
    surface = fit(Curve.of(compute, np.maximum(score, 0.0)), cutoff=0.0).surface
    assert surface is not None
    shift, values = surface.problem.box.shift, np.array([0.36, 0.40, 0.46])
    quantity = Quantity(np.log(9000.0))
    problem = HeldProblem(surface.problem, quantity, np.zeros(3), np.zeros(3), values - shift)
    sse, log_b, mid = least_held(problem, np.full(3, 0.2), np.full(3, 8.0), steps=60)
    reference = [penalised(compute, np.maximum(score, 0.0), quantity, v, 0.0) for v in values]
    np.testing.assert_allclose(sse, reference, rtol=2e-3)
    free = surface.problem.law.rise(np.exp(log_b)[:, None] * (surface.problem.x - mid[:, None]))
    star = surface.problem.law.rise(np.exp(log_b) * (quantity.x - mid))
    column, rest = free - star[:, None], surface.problem.y - (values - shift)[:, None]
    d = np.vecdot(column, rest) / np.vecdot(column, column)
    assert np.any(values - d * star < 0.0)  # the unbounded optimum at that shape would start below 0


def test_distribution_is_the_t_of_the_profile():
    """Independent noise alone: P(A <= v) is the t distribution's value at the signed root that scipy finds."""
    compute, score = noisy(4, n=9, ratio=4.0)
    surface = fit(Curve.of(compute, score), cutoff=0.0).surface
    assert surface is not None
    white = replace(surface, weight=(np.arange(len(PHIS)) == WHITE).astype(float))
    ceiling = distribution(white, CEILING)
    best = surface.exact.r0[0] + surface.exact.d[0] + surface.problem.box.shift
    least = surface.exact.sse[0]
    shown = np.sqrt(least / 5)
    variance = (least + np.clip(0.005, 1.5 * shown, 3 * shown) ** 2) / 6  # the prior counts as one more residual
    for value in (best - 0.02, best - 0.008, best + 0.015, best + 0.04):
        excess = penalised(compute, score, CEILING, value, 0.0) - least
        expected = stdtr(6, np.sign(value - best) * np.sqrt(excess / variance))
        assert 1.0 - ceiling.above(value) == pytest.approx(expected, abs=0.02)
