"""`scalerl-mini ablate`: run a study and rank it."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command(name="ablate", short_help="Train variants of a recipe with several seeds and rank them.")
@click.option("--recipe", metavar="NAME", help="Recipe under study; see `recipes` [default: the job's defaults].")
@click.option(
    "--variants", default="base", show_default=True, help="Comma-separated: base, loo, recipes, or single names."
)
@click.option(
    "--grid", multiple=True, metavar="KEY=A,B", help="One variant for each value of a key; several are crossed."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key for all variants.")
@click.option("--seeds", type=click.IntRange(min=1), default=2, show_default=True, help="Runs of each variant.")
@click.option("--parallel", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at the same time.")
@click.option("--x", metavar="COLUMN", help="Compute column to compare over [default: as `fit` chooses].")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Study folder; run again, it goes on.")
def command(
    recipe: str | None,
    variants: str,
    grid: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: int,
    parallel: int,
    x: str | None,
    out: Path,
) -> None:
    """Train variants of a recipe with several seeds and rank them by ceiling and efficiency.

    Example: scalerl-mini ablate --recipe scalerl --variants base,loo --seeds 2 --out runs/loo
    """
    from scalerl_mini.ablation.ranking import draw, rank
    from scalerl_mini.ablation.study import Study, run_study
    from scalerl_mini.ablation.variants import parse_variants
    from scalerl_mini.config import load_config

    base = load_config(None, settings, recipe)
    names = tuple(name.strip() for name in variants.split(",") if name.strip())
    study = Study(out, recipe, settings, parse_variants(names, grid, base), tuple(range(seeds)))
    study.write()
    failed = run_study(study, parallel, lambda text: click.echo(text, err=True))
    click.echo(rank(study, x), nl=False)
    click.echo(f"figure: {draw(study, x)}", err=True)
    if failed:
        click.echo(f"failed: {', '.join(failed)}; see the logs in {out}", err=True)
        sys.exit(1)
