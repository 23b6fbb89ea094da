"""`scalerl-mini simulate`: synthetic curves with known truth, and the validation of the fitter on them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scalerl_mini.errors import UserError


@click.group()
def command() -> None:
    """Synthetic curves, and how far the fitter can be trusted on them.

    Example: scalerl-mini simulate validate --count 200 --phi 0 --phi 0.5 --plot coverage.png
    """


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--count", type=click.IntRange(1), default=10, show_default=True, help="How many runs.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Run i depends on (seed, i) alone.")
@click.option("--format", "kind", type=click.Choice(["csv", "jsonl"]), default="csv", show_default=True)
@click.option("--law", default="sigmoid", show_default=True, help="sigmoid, gompertz, stretched or power.")
@click.option("--r0", type=click.FloatRange(0, 1), help="Pass rate of the start model (drawn from .05-.55).")
@click.option("--a", type=click.FloatRange(0, 1), help="Ceiling A (drawn).")
@click.option("--b", type=click.FloatRange(0, min_open=True), help="Exponent B (drawn around 1.8).")
@click.option("--c-mid", type=click.FloatRange(0, min_open=True), help="C_mid (drawn from 1k-12k).")
@click.option("--n", type=click.IntRange(1), help="Evaluations a run (drawn from 15-75 when not given).")
@click.option("--ratio", type=float, help="Last compute / C_mid (drawn from .5-8).")
@click.option("--sigma", type=float, help="Noise of an evaluation (drawn: binomial plus training noise).")
@click.option("--phi", type=float, help="Lag-1 correlation of the noise (drawn from 0, .3, .5, .8).")
@click.option(
    "--fault", "faults", multiple=True, help="transient, outliers, gaps, repeats, collapse, second_phase, ..."
)
def curves(folder: Path, count: int, seed: int, kind: str, law: str, r0: float | None, a: float | None,
           b: float | None, c_mid: float | None, n: int | None, ratio: float | None, sigma: float | None,
           phi: float | None, faults: tuple[str, ...]) -> None:  # fmt: skip
    """Write synthetic runs into FOLDER, with truth.json beside them.

    Example: scalerl-mini simulate curves /tmp/runs --count 5 --ratio 3 --fault transient
    """
    from simulate.curves import Spec
    from simulate.files import write_curves

    spec = Spec(law=law, R0=r0, A=a, B=b, C_mid=c_mid, n=n, ratio=ratio, sigma=sigma, phi=phi, faults=faults)
    paths = write_curves(folder, spec, count, seed, kind)
    print(f"wrote {len(paths)} runs and truth.json into {folder}")


@command.command()
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="Curves per cell.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed gives the same table."
)
@click.option("--sigma", "sigmas", type=float, multiple=True, help="Noise; several make several cells. [.003-.01]")
@click.option("--phi", "phis", type=float, multiple=True, help="Noise correlation. [0, .3, .5, .8]")
@click.option("--ratio", "ratios", type=float, multiple=True, help="Last compute / C_mid. [1-8]")
@click.option("--n", "counts", multiple=True, metavar="N|LO-HI", help="Evaluations. [16-75]")
@click.option("--r0", "r0s", type=click.Choice(["free", "measured"]), multiple=True, help="R_0 known or not. [both]")
@click.option("--cutoff", "cutoffs", type=float, multiple=True, help="Early cutoff, share. [.1]")
@click.option("--law", "laws", multiple=True, help="True law. [sigmoid]")
@click.option("--fault", "faults", multiple=True, help="Faults, one cell each; `none` for none. [none]")
@click.option("--robust", is_flag=True, help="Also the interval over other saturating laws.")
@click.option("--rivals", is_flag=True, help="Also the power law and the paper's grid.")
@click.option("--pairs", is_flag=True, help="Also pairs of recipes: how often is the wrong winner named?")
@click.option("--workers", type=click.IntRange(1), help="Processes. [all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write the JSON object to a file as well.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the coverage figure.")
def validate(count: int, seed: int, workers: int | None, as_json: bool, out: Path | None, plot: Path | None,
             **grid: tuple) -> None:  # fmt: skip
    """Fit many synthetic curves per cell: errors, coverage, verdicts, flags, wrong winners.

    Example: scalerl-mini simulate validate --count 1000 --phi 0 --phi 0.8 --r0 free --plot coverage.png
    """
    from rich.console import Console
    from rich.progress import Progress

    from scalerl_mini.scaling.output import to_json
    from scalerl_mini.scaling.plots import check_ending
    from simulate.cells import cells_of
    from simulate.tables import plot_coverage, table
    from simulate.validation import validate as run

    if plot:
        check_ending(plot)
    cells = cells_of(**grid)  # type: ignore[arg-type]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(cells)} cells x {count} curves", total=len(cells) * count)
        rows = run(cells, count, seed, workers, lambda done: progress.advance(task, done))
    text = to_json({"seed": seed, "count": count, "cells": rows})
    if out:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(text + "\n")
        except OSError as error:
            raise UserError(f"{out}: cannot be written ({error.strerror}); give another place") from error
    print(text if as_json else table(rows))
    if plot:
        print(f"wrote {plot_coverage(rows, plot)}", file=sys.stderr)


@command.command()
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="Curves per run of Table 1.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed gives the same table."
)
@click.option("--r0", type=click.Choice(["free", "measured"]), default="free", show_default=True)
@click.option("--workers", type=click.IntRange(1), help="Processes. [all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def table1(count: int, seed: int, r0: str, workers: int | None, as_json: bool) -> None:
    """The paper's Table 1 as truths: fit the first half of each run, forecast its end.

    Example: scalerl-mini simulate table1 --count 200
    """
    from rich.console import Console
    from rich.progress import Progress

    from scalerl_mini.scaling.output import to_json
    from simulate.table1 import RUNS, text
    from simulate.table1 import table1 as run

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(RUNS)} runs x {count} curves", total=len(RUNS) * count)
        rows = run(count, seed, r0, workers, lambda done: progress.advance(task, done))
    print(to_json({"seed": seed, "count": count, "runs": rows}) if as_json else text(rows))
