"""Which recipe is better: in the end (ceiling A), at a given compute, and how fast it gets there (B at a common A).

"Undecided" is an answer. Ranking by |A1 - A2| > .02, the usual rule, names the wrong winner far more often than waiting for
P(A1 > A2) > .95 does (docs/fitting.md has both rates).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from scalerl_mini.errors import UserError
from scalerl_mini.scaling.efficiency import AtCeiling, at_ceiling
from scalerl_mini.scaling.held import CEILING, Quantity
from scalerl_mini.scaling.pooling import Pooled, pool
from scalerl_mini.scaling.result import Fit, log_of

SURE = 0.95
SAME_CEILING = 0.02  # the paper's margin on A


@dataclass(frozen=True)
class Recipe:
    """A name and the fits of its runs (seeds)."""

    name: str
    fits: tuple[Fit, ...]

    def pooled(self, quantity: Quantity, between_sd: float | None = None) -> Pooled:
        """The quantity over the recipe's runs; each recipe draws from a seed of its own name."""
        parts = [fit.distribution(quantity) for fit in self.fits]
        return pool(parts, sum(map(ord, self.name)), between_sd)

    @property
    def known(self) -> bool:
        """Whether the ceiling of at least one of its runs is identified at all."""
        return any(fit.A is not None for fit in self.fits)

    @property
    def last(self) -> float:
        """Smallest last compute of its runs."""
        return min(fit.last for fit in self.fits)


@dataclass(frozen=True)
class Pair:
    """Two recipes set against each other; probabilities are for the first being the better."""

    first: str
    second: str
    p_ceiling: float
    p_at: tuple[tuple[float, float], ...]  # (compute, P(R1 > R2))
    crossing: dict[str, float | None]  # compute where P(R1 > R2) passes .1, .5, .9
    common_A: float | None
    B: tuple[float, float] | None
    p_faster: float | None

    def verdict(self, p: float | None) -> str:
        """The winner's name at 95 %, else `undecided`."""
        if p is None:
            return "undecided"
        return self.first if p >= SURE else self.second if p <= 1.0 - SURE else "undecided"


@dataclass(frozen=True)
class Comparison:
    """All pairs, and each recipe's pooled ceiling."""

    recipes: tuple[Recipe, ...]
    ceilings: dict[str, Pooled]
    pairs: tuple[Pair, ...]


def compare(
    groups: Mapping[str, Sequence[Fit]], computes: Sequence[float] = (), between_sd: float | None = None
) -> Comparison:
    """Compare two or more recipes, each given as the fits of its runs; R is compared at `computes` and at the end.

    Raises UserError when fewer than two are given or one has no fit.
    """
    if between_sd is not None and not 0.0 <= between_sd < 1.0:
        raise UserError(f"between_sd {between_sd:g} is no spread of a pass rate: give a fraction such as 0.015")
    if len(groups) < 2:
        raise UserError("compare needs two recipes or more: give several sources, NAME=SOURCE to pool seeds")
    for name, fits in groups.items():
        for fit in fits:
            if fit.surface is None:
                raise UserError(
                    f"{name}: {fit.curve.name or 'curve'} has no fit ({fit.status}: {fit.reason}); leave it out"
                )
    recipes = tuple(Recipe(name, tuple(fits)) for name, fits in groups.items())
    units = {fit.curve.x for recipe in recipes for fit in recipe.fits}
    if len(units) > 1:
        raise UserError(f"compute is {' and '.join(sorted(units))}: name one column for all with --x")
    ceilings = {r.name: r.pooled(CEILING, between_sd) for r in recipes}
    pairs = tuple(_pair(a, b, ceilings, computes, between_sd) for a, b in combinations(recipes, 2))
    return Comparison(recipes, ceilings, pairs)


def _pair(
    a: Recipe, b: Recipe, ceilings: Mapping[str, Pooled], computes: Sequence[float], between_sd: float | None
) -> Pair:
    first, second = ceilings[a.name], ceilings[b.name]
    wanted = computes or (min(a.last, b.last), 2.0 * max(a.last, b.last))
    p_at = tuple((c, _p_at(a, b, c, between_sd)) for c in wanted)
    common, b_values, faster = _common(first, second) if a.known and b.known else None, None, None
    if common is not None:
        refits = at_common(a, common), at_common(b, common)
        b_values = (float(np.mean([r.B for r in refits[0]])), float(np.mean([r.B for r in refits[1]])))
        faster = _faster(*refits)
    return Pair(a.name, b.name, first.above(second), p_at, _crossing(a, b, between_sd), common, b_values, faster)


def _common(first: Pooled, second: Pooled) -> float | None:
    """The ceiling at which B is compared; None when the ceilings differ.

    Within .02 it is their mean (the paper's rule). When they are further apart but not told apart, the better known one
    counts more, so that no recipe is refitted at a ceiling that its own data exclude.
    """
    if abs(first.value - second.value) <= SAME_CEILING:
        return 0.5 * (first.value + second.value)
    if not 1.0 - SURE < first.above(second) < SURE:
        return None
    weights = [1.0 / max(high - low, 1e-6) ** 2 for low, high in (first.interval(), second.interval())]
    return (weights[0] * first.value + weights[1] * second.value) / sum(weights)


def _p_at(a: Recipe, b: Recipe, compute: float, between_sd: float | None) -> float:
    quantity = Quantity(log_of(compute))
    return a.pooled(quantity, between_sd).above(b.pooled(quantity, between_sd))


def at_common(recipe: Recipe, ceiling: float) -> list[AtCeiling]:
    """Refits of all runs of a recipe with A held."""
    return [at_ceiling(fit, ceiling) for fit in recipe.fits]


def _faster(first: Sequence[AtCeiling], second: Sequence[AtCeiling]) -> float:
    """P(B1 > B2) at the common ceiling. The paper gives no margin on B, so only the runs' own scatter is added."""
    parts = []
    for k, refits in enumerate((first, second)):
        spread = float(np.std([r.B for r in refits], ddof=1)) if len(refits) > 1 else 0.0
        parts.append(pool([r.distribution for r in refits], k, spread))
    return parts[0].above(parts[1])


def _crossing(a: Recipe, b: Recipe, between_sd: float | None, points: int = 13) -> dict[str, float | None]:
    """Compute at which P(R1 > R2) passes .1, .5 and .9, between the first points of both and 10 times the end."""
    start = max(fit.used.compute[0] for r in (a, b) for fit in r.fits)
    computes = np.geomspace(start, 10.0 * max(a.last, b.last), points)
    p = np.array([_p_at(a, b, c, between_sd) for c in computes])
    found: dict[str, float | None] = {}
    for level in (0.1, 0.5, 0.9):
        change = np.flatnonzero((p[:-1] - level) * (p[1:] - level) < 0)
        if not change.size:
            found[f"{level:g}"] = None
            continue
        i = int(change[-1])
        share = (level - p[i]) / (p[i + 1] - p[i])
        found[f"{level:g}"] = float(np.exp(np.log(computes[i]) + share * np.log(computes[i + 1] / computes[i])))
    return found
