"""Figures of a comparison: the curves with their bands, and the paper's linearised efficiency plot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scalerl_mini.scaling.compare import Comparison, Recipe, at_common
from scalerl_mini.scaling.plots import log_compute, new_figure, save

COLOURS = ("#1f5fa8", "#d9534f", "#3a8f5c", "#8a5aa8", "#c98a1b", "#4aa3a8")


def plot_comparison(comparison: Comparison, path: str | Path, reach: float = 3.0) -> Path:
    """Left: points, sigmoids and 90 % bands; right: logit of the gained share against log compute, at the common A."""
    figure, (left, right) = new_figure(11.0, columns=2)
    colours = dict(zip((r.name for r in comparison.recipes), _cycle(len(comparison.recipes)), strict=True))
    for recipe in comparison.recipes:
        _curves(left, recipe, colours[recipe.name], reach)
    log_compute(left, comparison.recipes[0].fits[0].curve.x)
    left.set_ylabel("pass rate")
    left.legend(fontsize=8)
    common = next((p.common_A for p in comparison.pairs if p.common_A is not None), None)
    if common is None:
        right.set_title("no common ceiling: efficiency is not comparable", fontsize=9)
    else:
        for recipe in comparison.recipes:
            _linear(right, recipe, common, colours[recipe.name])
        right.set_title(f"slope = B, at the common A = {common:.3f}", fontsize=9)
        right.set_ylabel("logit of (R - R_0) / (A - R_0)")
        log_compute(right, comparison.recipes[0].fits[0].curve.x)
        right.legend(fontsize=8)
    return save(figure, path)


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _curves(axes, recipe: Recipe, colour: str, reach: float) -> None:
    for k, fit in enumerate(recipe.fits):
        axes.plot(fit.used.compute, fit.used.score, "o", ms=3, color=colour)
        grid = np.geomspace(fit.used.compute[0], reach * fit.last, 30)
        band = np.array([fit.at(c)[1] for c in grid])
        axes.fill_between(grid, band[:, 0], band[:, 1], color=colour, alpha=0.12, lw=0)
        smooth = np.geomspace(grid[0], grid[-1], 150)
        label = recipe.name if k == 0 else None
        axes.plot(smooth, [fit.value(c) for c in smooth], color=colour, lw=1.4, label=label)


def _linear(axes, recipe: Recipe, ceiling: float, colour: str) -> None:
    refits = at_common(recipe, ceiling)
    b = float(np.mean([refit.B for refit in refits]))
    for k, (fit, refit) in enumerate(zip(recipe.fits, refits, strict=True)):
        share = (fit.used.score - refit.R0) / (ceiling - refit.R0)
        good = (share > 0.01) & (share < 0.99)
        axes.plot(fit.used.compute[good], np.log(share[good] / (1 - share[good])), "o", ms=3, color=colour)
        grid = np.geomspace(fit.used.compute[0], fit.last, 50)
        label = f"{recipe.name}: B = {b:.2f}" if k == 0 else None
        axes.plot(grid, refit.B * np.log(grid / refit.C_mid), color=colour, lw=1.4, label=label)
