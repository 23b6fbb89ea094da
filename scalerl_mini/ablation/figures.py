"""Figures of a study: curves with each variant's ceiling and exponent, and the paper's linearised efficiency."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scalerl_mini.ablation.ranking import Ranking
from scalerl_mini.scaling.compare import at_common
from scalerl_mini.scaling.plots import log_compute, new_figure, save


def draw_curves(ranking: Ranking) -> Path:
    """curves.png. Left: every run and its law over log compute; middle and right: A and B of every run with 90 % bars."""
    figure, (left, middle, right) = new_figure(12.0, 4.6, columns=3)
    left.get_gridspec().set_width_ratios([2.6, 1, 1])
    for number, (name, runs) in enumerate(ranking.fits.items()):
        colour = f"C{number % 10}"
        for index, one in enumerate(runs):
            marker = "os^v"[index % 4]
            style = "-" if one.surface is None else ""
            left.plot(one.curve.compute, one.curve.score, marker + style, ms=3, lw=0.7, color=colour)
            if one.surface is not None:
                grid = np.geomspace(one.used.compute[0], one.last, 100)
                left.plot(grid, [one.value(c) for c in grid], lw=1.3, color=colour)
            row = number + 0.16 * (index - 0.5 * (len(runs) - 1))
            for axes, parameter in ((middle, "A"), (right, "B")):
                _bar(axes, row, getattr(one, parameter), one.intervals.get(parameter), colour, marker)
        left.plot([], [], lw=2, color=colour, label=name)
    log_compute(left, ranking.x)
    left.set_ylabel("held-out pass rate")
    left.legend(fontsize=8)
    for axes, title in ((middle, "ceiling A"), (right, "exponent B")):
        axes.set_title(title, fontsize=10)
        axes.set_yticks(
            range(len(ranking.fits)), ranking.fits if axes is middle else [""] * len(ranking.fits), fontsize=8
        )
        axes.set_ylim(len(ranking.fits) - 0.5, -0.5)
        axes.grid(axis="x", lw=0.4)
    return save(figure, ranking.folder / "curves.png")


def _bar(axes, row: float, value: float | None, interval: tuple[float, float] | None, colour: str, marker: str) -> None:
    """A value and its interval; without a value, the interval alone; without a fit, nothing."""
    if interval:
        axes.plot(interval, (row, row), lw=1.6, color=colour)
    if value is not None:
        axes.plot(value, row, marker, ms=5, color=colour)


def draw_efficiency(ranking: Ranking) -> Path | None:
    """efficiency.png: (R - R_0) / (A - R) against compute, both logarithmic, at the common A; the slope is B.

    Variants whose ceiling is unknown or decidedly another one are left out: their B means something else. None, and no
    figure of an earlier call, when fewer than two are left.
    """
    path = ranking.folder / "efficiency.png"
    ceiling, names = ranking.common_ceiling()
    if len(names) < 2:
        path.unlink(missing_ok=True)
        return None
    figure, axes = new_figure()
    for number, name in enumerate(ranking.fits):
        if name not in names:
            continue
        recipe = ranking.recipes[name]
        refits = at_common(recipe, ceiling)
        mean = np.mean([refit.B for refit in refits])
        for index, (one, refit) in enumerate(zip(recipe.fits, refits, strict=True)):
            share = (one.used.score - refit.R0) / (ceiling - refit.R0)
            good = (share > 0.01) & (share < 0.99)
            odds = share[good] / (1 - share[good])
            axes.plot(one.used.compute[good], odds, "os^v"[index % 4], ms=3, color=f"C{number % 10}")
            grid = np.array([one.used.compute[0], one.last])
            label = f"{name}: B = {mean:.2f}" if index == 0 else None
            axes.plot(grid, (grid / refit.C_mid) ** refit.B, lw=1.3, color=f"C{number % 10}", label=label)
    axes.set_yscale("log")
    log_compute(axes, ranking.x)
    axes.set_ylabel("(R - R_0) / (A - R)")
    axes.set_title(f"slope = B, at the common A = {ceiling:.3f}", fontsize=10)
    axes.legend(fontsize=8)
    return save(figure, path)
