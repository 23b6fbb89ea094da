"""The closed form and the AR(1) algebra against dense matrices and a brute-force search."""

import numpy as np
import pytest

from scalerl_mini.scaling.normal import Box, ar_product, ar_square, normal_equations, solve, whiten

PHIS = np.array([-0.3, 0.0, 0.5, 0.9])


def precision(n, phi):
    """Inverse of the AR(1) correlation matrix times (1 - phi^2): the unit-innovation precision."""
    i = np.arange(n)
    return np.linalg.inv(phi ** np.abs(i[:, None] - i)) / (1 / (1 - phi**2)) if phi else np.eye(n)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.random((7, 12)), rng.normal(0.0, 0.3, 12)


def test_precision_products_are_those_of_the_dense_matrix(data):
    rise, y = data
    for f, phi in enumerate(PHIS):
        dense = precision(12, phi)
        np.testing.assert_allclose(ar_product(y, PHIS)[f], dense @ y, atol=1e-12)
        np.testing.assert_allclose(ar_square(rise, PHIS)[f], np.einsum("gi,ij,gj->g", rise, dense, rise), atol=1e-12)


def test_whitening_gives_the_same_inner_product(data):
    rise, _ = data
    for phi in PHIS:
        white = whiten(rise, phi)
        np.testing.assert_allclose(white @ white.T, rise @ precision(12, phi) @ rise.T, atol=1e-12)


@pytest.mark.parametrize("box", [Box(-9.0, 9.0), Box(-0.05, 0.1), Box(0.0, 0.02)])
@pytest.mark.parametrize("kappa", [0.0, 3.0])
def test_solve_is_the_best_point_of_the_box(data, box, kappa):
    rise, y = data
    eq = normal_equations(rise, y, PHIS, np.full(4, kappa), 0.02)
    r0, d, sse = solve(eq, box)
    assert np.all(r0 >= box.low - 1e-12)
    assert np.all(d >= -1e-12)
    assert np.all(r0 + d <= box.high + 1e-12)
    trial_r0, trial_d = np.meshgrid(np.linspace(max(box.low, -1), min(box.high, 1), 201), np.linspace(0, 2, 401))
    allowed = trial_r0 + trial_d <= box.high
    for f, phi in enumerate(PHIS):
        dense = precision(12, phi)
        for g in range(3):
            res = y - trial_r0[allowed][:, None] - trial_d[allowed][:, None] * rise[g]
            brute = np.einsum("ti,ij,tj->t", res, dense, res) + kappa * (0.02 - trial_r0[allowed]) ** 2
            mine = y - r0[f, g] - d[f, g] * rise[g]
            assert sse[f, g] == pytest.approx(mine @ dense @ mine + kappa * (0.02 - r0[f, g]) ** 2, abs=1e-10)
            assert sse[f, g] <= brute.min() + 1e-9
