"""Whatever comes in: a status, no exception, no warning."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl_mini.scaling import Curve, fit

STATUSES = {"ok", "too_few_points", "no_rise", "collapse"}


def mangled(rng):
    """A curve with something wrong with it."""
    n = int(rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 12, 40]))
    compute = np.sort(rng.uniform(0.1, 10, n)) * 10.0 ** rng.integers(-250, 250)
    if rng.random() < 0.5:
        compute = np.arange(1, n + 1) * 10.0 ** rng.integers(-12, 24)
    shape = rng.integers(7)
    u = np.linspace(0, 1, n)
    score = [
        0.3 + 0.3 * u, np.full(n, rng.random()), 0.8 - 0.5 * u, rng.random(n), (u > 0.5) * 1.0,
        0.1 + 0.5 / (1 + np.exp(-10 * (u - 0.4))), 0.5 * u * (1 - u),
    ][shape]  # fmt: skip
    score = np.clip(score + rng.choice([0, 1e-12, 0.01, 0.1]) * rng.normal(size=n), 0, 1)
    if rng.random() < 0.3:
        score = 100 * score
    for value in (np.nan, np.inf, -np.inf):
        if n and rng.random() < 0.15:
            score = score.astype(float)
            score[rng.integers(n)] = value
        if n and rng.random() < 0.05:
            compute = compute.astype(float)
            compute[rng.integers(n)] = value
    if n > 2 and rng.random() < 0.3:
        compute[1] = compute[0]
    if n and rng.random() < 0.2:
        compute[0] = 0.0
    order = rng.permutation(n) if rng.random() < 0.3 else np.arange(n)
    return compute[order], score[order]


def check(compute, score):
    result = fit(Curve.of(compute, score))
    assert result.status in STATUSES
    result.to_json()
    if result.surface is not None:
        low, high = result.intervals["A"]
        assert 0.0 <= low <= high <= 1.0
        assert np.isfinite(result.at(2 * result.last)[0])


@pytest.mark.slow
def test_mangled_curves_give_a_status_without_exception_or_warning():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        for _ in range(500):
            check(*mangled(rng))


floats = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(
    st.lists(st.tuples(floats, st.floats(0, 1) | st.just(float("nan"))), max_size=30),
    st.sampled_from([1.0, 1e-200, 1e200]),
)
@settings(max_examples=80, deadline=None)
def test_any_points_give_a_status(points, factor):
    with np.errstate(over="ignore"):
        compute = np.array([p[0] for p in points], float) * factor
    check(compute, [p[1] for p in points])
