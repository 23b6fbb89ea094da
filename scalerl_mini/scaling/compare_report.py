"""A comparison as text and as a JSON object: ceilings, pairs, and which knob moved what."""

from __future__ import annotations

from collections.abc import Mapping

from scalerl_mini.scaling.compare import Comparison, Pair

Knobs = Mapping[tuple[str, str], Mapping[str, tuple[object, object]]]


def comparison_report(comparison: Comparison, level: float = 0.9, knobs: Knobs | None = None) -> str:
    """Plain text: one line a recipe, a block a pair."""
    lines = []
    wide = max(14, *(len(recipe.name) for recipe in comparison.recipes))
    for recipe in comparison.recipes:
        pooled = comparison.ceilings[recipe.name]
        low, high = pooled.interval(level)
        seeds = f"{pooled.runs} runs, between-run sd {pooled.between_sd:.3f}" if pooled.runs > 1 else "1 run"
        verdicts = ", ".join(fit.verdict for fit in recipe.fits)
        value = f"{pooled.value:.3f} " if recipe.known else ""
        lines.append(f"{recipe.name:<{wide}}  A {value}[{low:.3f}, {high:.3f}]  {seeds}  ({verdicts})")
    for pair in comparison.pairs:
        lines += ["", *_pair_lines(pair, dict((knobs or {}).get((pair.first, pair.second), {})))]
    if any(p.runs == 1 for p in comparison.ceilings.values()):
        lines += ["", "one run a recipe: these probabilities are about the runs; recipes also differ from seed to seed",
                  "(about .015 in A): pool seeds with NAME=SOURCE, or set --between-sd 0.015"]  # fmt: skip
    return "\n".join(lines)


def _pair_lines(pair: Pair, knobs: dict[str, tuple[object, object]]) -> list[str]:
    name = f"{pair.first} v {pair.second}"
    lines = [f"{name}: ceiling P(A1 > A2) = {pair.p_ceiling:.2f} -> {_call(pair, pair.p_ceiling)}"]
    lines += [f"  at {compute:.4g}: P(R1 > R2) = {p:.2f} -> {_call(pair, p)}" for compute, p in pair.p_at]
    crossings = [f"{p} at {c:.3g}" for p, c in pair.crossing.items() if c is not None]
    lines.append(f"  P(R1 > R2) passes {', '.join(crossings) if crossings else 'none of .1, .5, .9'}")
    if pair.B is not None and pair.common_A is not None:
        lines.append(
            f"  efficiency at the common A = {pair.common_A:.3f}: B = {pair.B[0]:.2f} v {pair.B[1]:.2f}, "
            f"P(B1 > B2) = {pair.p_faster:.2f} -> {_call(pair, pair.p_faster)}"
        )
    else:
        lines.append("  efficiency: B is not comparable, because the ceilings differ or one is not identified")
    lines.append(f"  moved: {moved(pair)}")
    if knobs:
        lines.append("  by: " + ", ".join(f"{k} {a!r} -> {b!r}" for k, (a, b) in knobs.items()))
    return lines


def _call(pair: Pair, p: float | None) -> str:
    verdict = pair.verdict(p)
    return verdict if verdict == "undecided" else f"{verdict} is better"


def moved(pair: Pair) -> str:
    """Which of the two, ceiling or efficiency, the change between the recipes moved."""
    ceiling = pair.verdict(pair.p_ceiling) != "undecided"
    faster = pair.verdict(pair.p_faster) != "undecided"
    return "ceiling" if ceiling else "efficiency" if faster else "nothing that these curves can show"


def comparison_dict(comparison: Comparison, level: float = 0.9, knobs: Knobs | None = None) -> dict[str, object]:
    """The JSON object of a comparison."""
    ceilings = {
        name: {"value": p.value, "interval": p.interval(level), "between_sd": p.between_sd, "runs": p.runs}
        for name, p in comparison.ceilings.items()
    }
    return {"level": level, "ceilings": ceilings, "pairs": [_pair_dict(p, knobs or {}) for p in comparison.pairs]}


def _pair_dict(pair: Pair, knobs: Knobs) -> dict[str, object]:
    return {
        "first": pair.first,
        "second": pair.second,
        "p_ceiling": pair.p_ceiling,
        "ceiling": pair.verdict(pair.p_ceiling),
        "at": [{"compute": c, "p": p, "winner": pair.verdict(p)} for c, p in pair.p_at],
        "crossing": pair.crossing,
        "common_A": pair.common_A,
        "B": pair.B,
        "p_faster": pair.p_faster,
        "efficiency": pair.verdict(pair.p_faster),
        "moved": moved(pair),
        "knobs": {k: list(v) for k, v in knobs.get((pair.first, pair.second), {}).items()},
    }
