"""`scalerl-mini ablate`: run a study and rank it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

BASE = "scalerl"


@click.command(name="ablate", short_help="Train variants of a recipe with several seeds and rank them.")
@click.option("--recipe", metavar="NAME", help=f"Base of the variants; see `recipes` [default: {BASE}].")
@click.option("--variants", metavar="NAME,NAME", help="base, loo, recipes, no-is, or single names, e.g. base,loo-savg.")
@click.option(
    "--grid", multiple=True, metavar="KEY=A,B", help="A variant for each value of a key; several are crossed."
)
@click.option("--variant", "own", multiple=True, metavar="'NAME: K=V K=V'", help="A variant with several settings.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key for all variants.")
@click.option("--seeds", type=click.IntRange(min=1), help="Runs of each variant [default: 2].")
@click.option("--cores", type=click.IntRange(min=1), help="Run side by side what fits [default: one at a time].")
@click.option("--x", metavar="COLUMN", help="Compute column to compare over [default: as `fit` chooses].")
@click.option("--rank-only", is_flag=True, help="Rank the runs that have ended; start nothing.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Study folder.")
def command(
    recipe: str | None,
    variants: str | None,
    grid: tuple[str, ...],
    own: tuple[str, ...],
    settings: tuple[str, ...],
    seeds: int | None,
    cores: int | None,
    x: str | None,
    rank_only: bool,
    out: Path,
) -> None:
    """Train variants of a recipe with several seeds and rank them by ceiling and efficiency.

    The first variant is the one the others are set against. Stopped, a study goes on with: ablate --out DIR.

    Example: scalerl-mini ablate --variants base,loo --seeds 2 --out runs/loo
    """
    from scalerl_mini.ablation.figures import draw_curves, draw_efficiency
    from scalerl_mini.ablation.idle import notes
    from scalerl_mini.ablation.ranking import rank, write
    from scalerl_mini.ablation.running import run_study, runs_at_once

    study = _study(recipe, variants, grid, own, settings, seeds, out)
    study.check()
    failed = []
    if not rank_only:
        for note in notes(study):
            click.echo(f"note: {note}", err=True)
        study.write()
        try:
            failed = run_study(study, runs_at_once(study, cores or 1), lambda text: click.echo(text, err=True))
        except KeyboardInterrupt:
            click.echo(f"stopped; continue with: scalerl-mini ablate --out {out}", err=True)
            raise
    for line in failed:
        click.echo(line, err=True)
    ranking = rank(study, x)
    click.echo(write(ranking), nl=False)
    for figure in (draw_curves(ranking), draw_efficiency(ranking)):
        if figure:
            click.echo(f"figure: {figure}", err=True)
    sys.exit(1 if failed else 0)


def _study(recipe, variants, grid, own, settings, seeds, out: Path):  # type: ignore[no-untyped-def]
    """The study that the options describe; the one in the folder when they describe none."""
    from dataclasses import replace

    from scalerl_mini.ablation.study import Study
    from scalerl_mini.ablation.variants import parse_variants
    from scalerl_mini.config import load_config
    from scalerl_mini.errors import UserError

    if not (variants or grid or own):
        if recipe or settings:
            raise UserError("--recipe and --set belong to a new study; say with --variants or --grid what it compares")
        study = Study.read(out)
        return replace(study, seeds=tuple(range(seeds))) if seeds else study
    names = tuple(name.strip() for name in (variants or "").split(",") if name.strip())
    base = load_config(None, settings, recipe or BASE)
    found = parse_variants(names, grid, own, base)
    return Study(out, recipe or BASE, settings, found, tuple(range(seeds or 2)))
