"""The prior on the noise's correlation: with few evaluations it leans towards large values, with many it does not matter."""

import numpy as np
import pytest

from scalerl_mini.scaling import fit, surface
from tests.scaling.synthetic import noisy_curve


def widths(n: int) -> np.ndarray:
    """Width of A's interval for eight curves of n evaluations."""
    found = [fit(noisy_curve(seed, n=n, sigma=0.01, phi=0.3)).intervals["A"] for seed in range(8)]
    return np.array([high - low for low, high in found])


def test_the_lean_widens_the_intervals_of_short_curves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = widths(10), widths(60)
    monkeypatch.setattr(surface, "FEW", np.zeros_like(surface.FEW))
    assert np.median(short / widths(10)) > 1.02
    assert np.median(np.abs(long / widths(60) - 1)) < 0.05
