"""From finished runs to a ranking: pooled ceiling and efficiency of every variant, and which differences are decided.

"Undecided" is an answer: with one or two seeds most differences between losses are noise, and the table says so.
"""

from __future__ import annotations

import json
from pathlib import Path

from scalerl_mini.ablation.study import Study
from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Fit, fit, read_curve
from scalerl_mini.scaling.compare import Comparison, compare


def fits_of(study: Study, x: str | None) -> dict[str, list[Fit]]:
    """Fits of every variant's runs that have evaluations, in the study's order."""
    found: dict[str, list[Fit]] = {}
    for variant in study.variants:
        folders = [study.run_folder(variant, seed) for seed in study.seeds]
        curves = [read_curve(folder, x) for folder in folders if (folder / "evals.jsonl").exists()]
        found[variant.name] = [fit(curve) for curve in curves]
    return found


def rank(study: Study, x: str | None = None) -> str:
    """Write ranking.json and ranking.md into the study's folder; returns the Markdown table."""
    fits = fits_of(study, x)
    whole = {name: [one for one in runs if one.surface is not None] for name, runs in fits.items()}
    whole = {name: runs for name, runs in whole.items() if runs}
    comparison = compare(whole) if len(whole) > 1 else None
    lines = ["| variant | runs | last pass rate | A (90 %) | B | C_mid |", "|---|---|---|---|---|---|"]
    lines += [_row(name, runs, comparison) for name, runs in fits.items()]
    if comparison:
        lines += [
            "",
            "| pair | ceiling: P(first higher) | verdict | efficiency at a common ceiling |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {pair.first} / {pair.second} | {pair.p_ceiling:.2f} | {pair.verdict(pair.p_ceiling)} | "
            f"{pair.verdict(pair.p_faster)} |"
            for pair in comparison.pairs
        ]
    text = "\n".join(lines) + "\n"
    (study.folder / "ranking.md").write_text(text, encoding="utf-8")
    record = {name: [one.to_dict() for one in runs] for name, runs in fits.items()}
    (study.folder / "ranking.json").write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return text


def draw(study: Study, x: str | None = None) -> Path:
    """One figure with the curve of every run, a colour a variant."""
    from scalerl_mini.scaling.plots import new_figure, save

    figure, axes = new_figure()
    for number, (name, runs) in enumerate(fits_of(study, x).items()):
        for index, one in enumerate(runs):
            label = name if index == 0 else None
            axes.plot(one.curve.compute, one.curve.score, "o-", ms=3, lw=1, color=f"C{number % 10}", label=label)
    if not axes.lines:
        raise UserError(f"{study.folder}: no run has an evaluation yet")
    axes.set_xscale("log")
    axes.set_xlabel(runs[0].curve.x if runs else "compute")
    axes.set_ylabel("held-out pass rate")
    axes.legend(fontsize=7)
    return save(figure, study.folder / "curves.png")


def _row(name: str, runs: list[Fit], comparison: Comparison | None) -> str:
    """One variant: its ceiling pooled over runs, B and C_mid run by run."""
    last = ", ".join(f"{one.curve.score[-1]:.3f}" for one in runs) or "-"
    pooled = comparison.ceilings.get(name) if comparison else None
    ceiling = f"{pooled.value:.3f} [{pooled.interval()[0]:.3f}, {pooled.interval()[1]:.3f}]" if pooled else "-"
    b = ", ".join("-" if one.B is None else f"{one.B:.2f}" for one in runs) or "-"
    mid = ", ".join("-" if one.C_mid is None else f"{one.C_mid:.3g}" for one in runs) or "-"
    return f"| {name} | {len(runs)} | {last} | {ceiling} | {b} | {mid} |"
