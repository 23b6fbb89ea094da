"""Plots people would paste: the curve with its fit, band and ceiling; PNG or SVG by the file's ending."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.result import Fit

ENDINGS = (".png", ".svg", ".pdf")
FIT, BAND, LEFT_OUT = "#1f5fa8", "#9dc3ea", "#b0b0b0"


def new_figure(width: float = 7.0, height: float = 4.4, columns: int = 1):
    """A matplotlib figure that needs no display, and its axes (a list when there are several)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def check_ending(path: str | Path) -> Path:
    """The path; raises UserError when its ending is no format. To be called before any long work."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path}: a plot is written as {', '.join(ENDINGS)}; give such an ending")
    return path


def save(figure, path: str | Path) -> Path:
    """Write the figure; the ending chooses the format. Raises UserError for another ending or an unwritable place."""
    path = check_ending(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); give another place") from error
    return path


def log_compute(axes, label: str) -> None:
    """A logarithmic compute axis; over less than three decades labelled at 1, 2 and 5 times a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high / max(low, 1e-300) < 1000.0:
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
        axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(label)


def compact(value: float) -> str:
    """A tick's number: 0.5, 20, 5k, 2e20."""
    if 1e3 <= value < 1e6:
        return f"{value / 1e3:g}k"
    return f"{value:g}".replace("e+", "e")


def plot_fit(fit: Fit, path: str | Path, reach: float = 4.0) -> Path:
    """Points used and left out, the sigmoid, its band, the extrapolation shaded, the ceiling with its interval; log x."""
    figure, axes = new_figure()
    used, every = fit.used, fit.curve
    out = ~np.isin(every.compute, used.compute)
    axes.plot(every.compute[out], every.score[out], "o", ms=4, color=LEFT_OUT, label="left out")
    axes.plot(used.compute, used.score, "o", ms=4, color=FIT, label=f"used ({fit.n_used})")
    if fit.surface is not None:
        _draw_law(axes, fit, reach)
    elif fit.predict is not None:
        grid = np.geomspace(used.compute[0], reach * fit.last, 200)
        axes.plot(grid, [fit.value(c) for c in grid], "-", color=FIT, lw=1.6, label=fit.method)
    log_compute(axes, every.x)
    axes.set_ylabel(every.y + (" (fraction)" if every.percent else ""))
    axes.set_title(_title(fit), fontsize=10)
    axes.legend(fontsize=8, loc="upper left")
    return save(figure, path)


def _draw_law(axes, fit: Fit, reach: float) -> None:
    first, last = fit.used.compute[0], fit.last
    grid = np.geomspace(first, reach * last, 200)
    axes.plot(grid, [fit.value(c) for c in grid], "-", color=FIT, lw=1.6, label="sigmoid")
    points = np.geomspace(first, reach * last, 40)
    band = np.array([fit.at(c)[1] for c in points])
    axes.fill_between(
        points, band[:, 0], band[:, 1], color=BAND, alpha=0.5, lw=0, label=f"{100 * fit.level:.0f} % band"
    )
    axes.axvspan(last, reach * last, color="#f3efe2", zorder=-5, label="extrapolation")
    low, high = fit.intervals["A"] or (0.0, fit.a_max)
    axes.axhspan(
        low, high, color="#d9534f", alpha=0.10, lw=0, label=f"A {100 * fit.level:.0f} % [{low:.3f}, {high:.3f}]"
    )
    if fit.A is not None:
        axes.axhline(fit.A, color="#d9534f", lw=1, ls="--")


def _title(fit: Fit) -> str:
    name = fit.curve.name or "curve"
    if fit.surface is None:
        return f"{name}: {fit.method if fit.predict else fit.status}"
    if fit.A is None:
        return f"{name}: ceiling not identified"
    return f"{name}: A = {fit.A:.3f}, B = {fit.B:.2f}, C_mid = {fit.C_mid:.3g} ({fit.verdict})"
