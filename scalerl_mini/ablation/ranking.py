"""From ended runs to a ranking: pass rate at equal compute, ceiling, efficiency at a common ceiling, and what is decided.

"Undecided" is an answer. Every variant is set against the first one; a difference counts as decided at P >= .95 either way,
so that of ten contrasts without any difference about one would be called decided by chance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalerl_mini.ablation.diagnosis import diagnosis_table
from scalerl_mini.ablation.running import ended
from scalerl_mini.ablation.study import Study
from scalerl_mini.errors import UserError
from scalerl_mini.scaling import Fit, fit, read_curve
from scalerl_mini.scaling.compare import SURE, Pair, Recipe, compare
from scalerl_mini.scaling.held import CEILING
from scalerl_mini.training.diagnostics import Diagnostics, diagnose

LAST_EVALUATIONS, NEAR = 3, 1.05  # evaluations come at equal steps, where compute differs by a few per cent


@dataclass(frozen=True)
class Ranking:
    """fits: of every variant's ended runs, in the study's order. compute: the largest that every ended run reached.

    recipes: the variants whose curves follow the law, the reference first. pairs: the reference and each other of them.
    diagnoses: what the logs of every variant's ended runs say beside their curves.
    """

    study: Study
    fits: Mapping[str, list[Fit]]
    compute: float
    recipes: Mapping[str, Recipe]
    pairs: tuple[Pair, ...]
    diagnoses: Mapping[str, list[Diagnostics]]

    @property
    def x(self) -> str:
        """The compute column."""
        return next(one.curve.x for runs in self.fits.values() for one in runs)

    @property
    def folder(self) -> Path:
        """Where the ranking over this compute column is written."""
        return self.study.folder / f"by-{self.x}"

    def common_ceiling(self) -> tuple[float, tuple[str, ...]]:
        """The ceiling at which exponents are drawn, and the variants it is common to (none when no ceiling is known).

        The variants with a known ceiling that is not decidedly another than that of the first of them; each weighs by how
        well its ceiling is known.
        """
        pooled = {name: recipe.pooled(CEILING) for name, recipe in self.recipes.items() if recipe.known}
        if not pooled:
            return float("nan"), ()
        first = next(iter(pooled.values()))
        same = {name: one for name, one in pooled.items() if one is first or 1 - SURE < one.above(first) < SURE}
        weights = [1.0 / float(np.var(one.draws)) for one in same.values()]
        return float(np.average([one.value for one in same.values()], weights=weights)), tuple(same)


def rank(study: Study, x: str | None = None) -> Ranking:
    """Fit and compare the ended runs over a compute column. Raises UserError when no run has ended."""
    folders = {
        variant.name: [folder for seed in study.seeds if ended(folder := study.run_folder(variant, seed))]
        for variant in study.variants
    }
    fits = {name: [fit(read_curve(folder, x)) for folder in found] for name, found in folders.items()}
    diagnoses = {name: [one for folder in found if (one := diagnose(folder))] for name, found in folders.items()}
    runs = [one for found in fits.values() for one in found]
    if not runs:
        raise UserError(f"{study.folder}: no run has ended yet, so there is nothing to rank")
    compute = min(float(one.curve.compute[-1]) for one in runs)
    recipes = {}
    for name, found in fits.items():
        lawful = tuple(one for one in found if one.surface is not None)
        if lawful:
            recipes[name] = Recipe(name, lawful)
    first, *others = recipes.values() or (None,)
    pairs = [compare({r.name: r.fits for r in (first, other)}, (compute,)).pairs[0] for other in others if first]
    return Ranking(study, fits, compute, recipes, tuple(pairs), diagnoses)


def write(ranking: Ranking) -> str:
    """Write ranking.md and ranking.json; returns the Markdown."""
    ranking.folder.mkdir(parents=True, exist_ok=True)
    text = markdown(ranking)
    (ranking.folder / "ranking.md").write_text(text, encoding="utf-8")
    record = {name: [one.to_dict() for one in runs] for name, runs in ranking.fits.items()}
    (ranking.folder / "ranking.json").write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return text


def markdown(ranking: Ranking) -> str:
    """Three tables: the variants, each against the reference, and what their logs say beside the curves."""
    lines = [
        f"Equal compute: {ranking.compute:.4g} {ranking.x}; pass rate there is the mean of {LAST_EVALUATIONS} evaluations,"
        " a value a seed. Brackets: 90 %.",
        "",
        "| variant | runs | pass rate | A | B | C_mid | law |",
        "|---|---|---|---|---|---|---|",
        *(_variant_row(ranking, name) for name in ranking.fits),
    ]
    if ranking.pairs:
        lines += [
            "",
            f"| against {ranking.pairs[0].first} | higher there | ceiling | efficiency at the common A |",
            "|---|---|---|---|",
            *map(_pair_row, ranking.pairs),
            *(f"| {name} | off the law | - | - |" for name, runs in ranking.fits.items() if _off_the_law(runs)),
        ]
    return "\n".join([*lines, *diagnosis_table(ranking.diagnoses)]) + "\n"


def pass_rate_at(one: Fit, compute: float) -> float:
    """Mean of the last evaluations up to a compute."""
    within = one.curve.score[one.curve.compute <= NEAR * compute]
    return float(np.mean(within[-LAST_EVALUATIONS:])) if len(within) else float("nan")


def _variant_row(ranking: Ranking, name: str) -> str:
    runs = ranking.fits[name]
    at = ", ".join(f"{pass_rate_at(one, ranking.compute):.3f}" for one in runs) or "-"
    law = ", ".join(dict.fromkeys(one.verdict if one.status == "ok" else one.status for one in runs)) or "-"
    cells = (
        *(name, f"{len(runs)} of {len(ranking.study.seeds)}", at, _ceiling(ranking, name)),
        *(_over_runs(runs, "B", ".2f"), _over_runs(runs, "C_mid", ".3g"), law),
    )
    return f"| {' | '.join(cells)} |"


def _ceiling(ranking: Ranking, name: str) -> str:
    if name not in ranking.recipes:
        return "-"
    pooled = ranking.recipes[name].pooled(CEILING)
    low, high = pooled.interval()
    value = f"{pooled.value:.3f} " if any(one.A is not None for one in ranking.fits[name]) else ""
    return f"{value}[{low:.3f}, {min(high, max(one.a_max for one in ranking.fits[name])):.3f}]"


def _off_the_law(runs: list[Fit]) -> bool:
    """Whether there are runs, and the law holds for none."""
    return bool(runs) and all(one.surface is None for one in runs)


def _over_runs(runs: list[Fit], name: str, form: str) -> str:
    """Mean of the runs' values, and the hull of their intervals (wider than a pooled interval, never too narrow)."""
    values = [value for one in runs if (value := getattr(one, name)) is not None]
    bounds = [interval for one in runs if (interval := one.intervals.get(name)) is not None]
    value = f"{np.mean(values):{form}} " if values else ""
    hull = f"[{min(b[0] for b in bounds):{form}}, {max(b[1] for b in bounds):{form}}]" if bounds else ""
    return value + hull or "-"


def _pair_row(pair: Pair) -> str:
    """Probabilities are for the variant being the better one."""
    p = pair.p_at[0][1]
    higher = f"{1 - p:.2f}: {pair.verdict(p)}"
    ceiling = f"{1 - pair.p_ceiling:.2f}: {pair.verdict(pair.p_ceiling)}"
    if pair.p_faster is None or pair.B is None:
        reason = "a ceiling is not identified" if pair.verdict(pair.p_ceiling) == "undecided" else "the ceilings differ"
        return f"| {pair.second} | {higher} | {ceiling} | not comparable, {reason} |"
    b = f"B {pair.B[1]:.2f} v {pair.B[0]:.2f}, {1 - pair.p_faster:.2f}: {pair.verdict(pair.p_faster)}"
    return f"| {pair.second} | {higher} | {ceiling} | {b} |"
