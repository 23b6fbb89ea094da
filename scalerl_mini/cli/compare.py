"""`scalerl-mini compare`: which recipe has the higher ceiling, which is ahead where, which is more efficient."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scalerl_mini.cli.fit import min_compute_option, r0_option
from scalerl_mini.errors import UserError


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="[NAME=]SOURCE...")
@click.option("--x", metavar="COL", help="Column of compute (guessed when not given).")
@click.option("--y", metavar="COL", help="Column of the pass rate (guessed when not given).")
@click.option("--cutoff", type=float, default=0.1, show_default=True, help="Share of the largest compute to cut early.")
@click.option("--min-compute", default="auto", metavar="X|auto", help="Cut points below this compute instead.")
@click.option("--max-compute", type=float, metavar="X", help="Leave out points above this compute.")
@click.option("--r0", default="auto", metavar="X|first|free", help="R_0: fitted, measured at compute 0, or a number.")
@click.option("--forecast", "forecasts", type=float, multiple=True, metavar="C", help="Compare R at this compute.")
@click.option("--between-sd", type=float, metavar="SD", help="Spread of A from seed to seed, instead of estimating it.")
@click.option("--level", type=float, default=0.9, show_default=True, help="Level of the intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw both plots (.png, .svg, .pdf).")
def command(sources: tuple[str, ...], x: str | None, y: str | None, cutoff: float, min_compute: str,
            max_compute: float | None, r0: str, forecasts: tuple[float, ...], between_sd: float | None, level: float,
            as_json: bool, plot: Path | None) -> None:  # fmt: skip
    """Compare runs: sources with the same NAME are seeds of one recipe and are pooled.

    Example: scalerl-mini compare cispo=runs/a1 cispo=runs/a2 dapo=runs/b1 --plot compare.png
    """
    from scalerl_mini.scaling import compare, fit, read_curve
    from scalerl_mini.scaling.compare_plots import plot_comparison
    from scalerl_mini.scaling.compare_report import comparison_dict, comparison_report
    from scalerl_mini.scaling.knobs import differences
    from scalerl_mini.scaling.output import to_json
    from scalerl_mini.scaling.plots import check_ending

    if plot:
        check_ending(plot)
    named = _named(sources)
    low = min_compute_option(min_compute)
    groups: dict[str, list] = {}
    for name, path in named:
        result = fit(read_curve(path, x, y), cutoff=cutoff, min_compute=low, max_compute=max_compute,
                     r0=r0_option(r0), level=level)  # fmt: skip
        groups.setdefault(name, []).append(result)
    comparison = compare(groups, forecasts, between_sd)
    first = dict(reversed(named))
    knobs = {(p.first, p.second): differences(first[p.first], first[p.second]) for p in comparison.pairs}
    if as_json:
        print(to_json(comparison_dict(comparison, level, knobs)))
    else:
        print(comparison_report(comparison, level, knobs))
    if plot:
        print(f"wrote {plot_comparison(comparison, plot)}", file=sys.stderr)


def _named(sources: tuple[str, ...]) -> list[tuple[str, Path]]:
    """(recipe, path) of every source; without NAME a file's or folder's own name, or its path when two share that."""
    split = [(name, path) if mark else ("", name) for name, mark, path in (s.partition("=") for s in sources)]
    for (name, path), source in zip(split, sources, strict=True):
        if not path or source.startswith("="):
            raise UserError(f"{source!r}: give SOURCE or NAME=SOURCE")
        if split.count((name, path)) > 1:
            raise UserError(f"{source!r} is given twice: a run counts once")
    own = [_own_name(Path(path)) for name, path in split if not name]
    return [(name or (_own_name(Path(p)) if own.count(_own_name(Path(p))) == 1 else p), Path(p)) for name, p in split]


def _own_name(path: Path) -> str:
    return path.resolve().name if path.is_dir() else path.stem
