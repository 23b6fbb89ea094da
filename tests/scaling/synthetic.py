"""Curves for the tests, made without the simulator's own generator where the two could share a mistake."""

import numpy as np

from scalerl_mini.scaling import Curve


def sigmoid(c, r0, a, b, c_mid):
    """The law as the paper writes it."""
    return r0 + (a - r0) / (1.0 + (c_mid / np.asarray(c, float)) ** b)


def noisy(seed, n=40, ratio=3.0, sigma=0.005, r0=0.3, a=0.6, b=1.8, c_mid=3000.0, phi=0.0):
    """(compute, score) of one run with AR(1) noise."""
    rng = np.random.default_rng(seed)
    compute = c_mid * ratio * np.arange(1, n + 1) / n
    noise, last = np.empty(n), 0.0
    for i in range(n):
        shock = rng.normal()
        last = shock if i == 0 else phi * last + np.sqrt(1 - phi**2) * shock
        noise[i] = last
    return compute, sigmoid(compute, r0, a, b, c_mid) + sigma * noise


def noisy_curve(seed, **options):
    """The same as a Curve."""
    return Curve.of(*noisy(seed, **options))
