"""The priors on the noise: with few evaluations they decide, with many they do not matter."""

import numpy as np
import pytest

from scalerl_mini.scaling import Fit, fit, surface
from scalerl_mini.scaling.held import CEILING
from scalerl_mini.scaling.surface import PHI, WHITE, noise_prior
from tests.scaling.synthetic import noisy_curve


def fits(n: int, sigma: float = 0.005) -> list[Fit]:
    """Eight curves of n evaluations, R_0 known."""
    return [fit(noisy_curve(seed, n=n, sigma=sigma, phi=0.3), r0=0.3) for seed in range(8)]


def widths(some: list[Fit]) -> np.ndarray:
    """Widths of A's intervals, before they are made as wide as the least that is printed."""
    return np.array([np.ptp(f.interval(CEILING)) for f in some])


def test_the_lean_is_towards_correlated_noise_on_short_curves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = fits(10), fits(60)
    monkeypatch.setattr(surface, "FEW", np.zeros_like(surface.FEW))
    assert np.median([a.phi - b.phi for a, b in zip(short, fits(10), strict=True)]) > 0.05
    assert np.median(np.abs(widths(long) / widths(fits(60)) - 1)) < 0.05


def test_the_prior_on_the_noise_doubts_small_residuals_of_short_curves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    small, usual, long = (widths(fits(*n)) for n in ((7, 0.0005), (7, 0.005), (60, 0.005)))
    monkeypatch.setattr(surface, "NOISE_DOF", 1e-9)
    assert np.median(small / widths(fits(7, 0.0005))) > 1.03
    assert np.median(usual / widths(fits(7, 0.005))) < 0.95  # something is known of the noise before it is seen
    assert np.median(np.abs(long / widths(fits(60)) - 1)) < 0.05


@pytest.mark.parametrize(("shown", "believed"), [(0.001, 0.003), (0.002, 0.005), (0.01, 0.015)])
def test_the_prior_stays_near_what_the_residuals_show(shown: float, believed: float) -> None:
    extra = noise_prior(shown**2 * 7, 7)
    assert np.sqrt(extra[WHITE]) == pytest.approx(believed)
    np.testing.assert_allclose(extra, believed**2 * (1 - PHI**2))
