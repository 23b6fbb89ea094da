import numpy as np
import pytest

from scalerl_mini.scaling.laws import LAWS, SIGMOID
from tests.scaling.synthetic import sigmoid


def test_sigmoid_is_the_papers_formula():
    c = np.geomspace(10, 1e6, 50)
    np.testing.assert_allclose(
        SIGMOID.value(c, 0.3, 0.61, 1.92, 2542.0), sigmoid(c, 0.3, 0.61, 1.92, 2542.0), atol=1e-15
    )


def test_sigmoid_is_half_way_at_c_mid_and_r0_at_zero():
    assert SIGMOID.value(2542.0, 0.3, 0.6, 1.9, 2542.0) == pytest.approx(0.45)
    assert SIGMOID.value(0.0, 0.3, 0.6, 1.9, 2542.0) == pytest.approx(0.3)


@pytest.mark.parametrize("name", LAWS)
def test_laws_rise_from_0_to_1_with_the_stated_slope(name):
    law = LAWS[name]
    u = np.linspace(-8, 8, 400)
    share, slope = law.rise_and_slope(u)
    np.testing.assert_array_equal(share, law.rise(u))
    assert share[0] < 1e-3
    assert share[-1] > 0.999
    np.testing.assert_allclose(slope, (law.rise(u + 1e-6) - law.rise(u - 1e-6)) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("name", LAWS)
def test_laws_are_finite_at_any_argument(name):
    share, slope = LAWS[name].rise_and_slope(np.array([-1e300, -800.0, 800.0, 1e300]))
    np.testing.assert_allclose(share, [0, 0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(slope, 0, atol=1e-12)
