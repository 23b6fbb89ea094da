import numpy as np
import pytest

from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.batch import fit_batch
from tests.scaling.synthetic import noisy


@pytest.fixture(scope="module")
def many():
    runs = [noisy(seed, ratio=2.0 + 0.2 * (seed % 10)) for seed in range(30)]
    compute = runs[0][0]
    rng = np.random.default_rng(0)
    return compute, runs[0][1] + rng.normal(0.0, 0.005, (30, len(compute)))


@pytest.mark.parametrize("r0", [None, 0.3])
def test_batch_agrees_with_single_fits(many, r0):
    compute, scores = many
    batch = fit_batch(compute, scores, r0, steps=60)
    for i in range(30):
        single = fit(Curve.of(compute, scores[i]), cutoff=0.0, r0="free" if r0 is None else r0)
        assert batch.sse[i] <= single.surface.exact.sse[0] * (1 + 1e-6)


def test_warm_start_gives_the_same_optimum(many):
    compute, scores = many
    cold, warm = fit_batch(compute, scores, steps=60), fit_batch(compute, scores, start=(1.8, 3000.0), steps=60)
    np.testing.assert_allclose(warm.sse, cold.sse, rtol=1e-6)


def test_the_cap_holds(many):
    compute, scores = many
    assert np.all(fit_batch(compute, scores, a_max=0.5).A <= 0.5 + 1e-12)
