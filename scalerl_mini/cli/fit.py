"""`scalerl-mini fit`: a curve's compute law, its ceiling with an interval, and a forecast."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scalerl_mini.errors import UserError


def r0_option(text: str) -> str | float:
    """`free`, `first`, `auto`, or a number."""
    if text in ("free", "first", "auto"):
        return text
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give free, first or a number", param_hint="--r0") from error


def min_compute_option(text: str) -> float | None:
    """A number of compute, or `auto` (None): the default share is cut."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give auto or a number", param_hint="--min-compute") from error


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--x", metavar="COL", help="Column of compute (guessed when not given).")
@click.option("--y", metavar="COL", help="Column of the pass rate, fraction or percent (guessed when not given).")
@click.option(
    "--law",
    type=click.Choice(["auto", "sigmoid", "power"]),
    default="auto",
    show_default=True,
    help="auto: the sigmoid, with a second line over other saturating laws; power: the rival A - D C^-B.",
)
@click.option(
    "--method",
    type=click.Choice(["default", "paper-grid"]),
    default="default",
    show_default=True,
    help="paper-grid repeats the paper's own grid search.",
)
@click.option("--a-grid", metavar="LO:HI:STEP", help="A values of paper-grid. [.45:.8:.005]")
@click.option("--c-mid-grid", metavar="LO:HI:COUNT", help="C_mid values of paper-grid. [100:40000:100]")
@click.option("--cutoff", type=float, default=0.1, show_default=True, help="Share of the largest compute to cut early.")
@click.option("--min-compute", default="auto", metavar="X|auto", help="Cut points below this compute instead.")
@click.option("--max-compute", type=float, metavar="X", help="Leave out points above this compute.")
@click.option("--r0", default="auto", metavar="X|first|free", help="R_0: fitted, measured at compute 0, or a number.")
@click.option("--forecast", "forecasts", type=float, multiple=True, metavar="C", help="Forecast R at this compute.")
@click.option("--worth", type=float, metavar="GAIN", help="Gain worth the compute, e.g. 0.02: GO, NO or UNDECIDED.")
@click.option("--level", type=float, default=0.9, show_default=True, help="Level of the intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the fit (.png, .svg, .pdf).")
def command(source: Path, x: str | None, y: str | None, law: str, method: str, a_grid: str | None, c_mid_grid: str | None,
            cutoff: float, min_compute: str,
            max_compute: float | None, r0: str, forecasts: tuple[float, ...], worth: float | None, level: float,
            as_json: bool, plot: Path | None) -> None:  # fmt: skip
    """Fit the sigmoid law to a run folder, a CSV or a JSONL file.

    Example: scalerl-mini fit runs/first --forecast 200 --worth 0.02 --plot fit.png
    """
    from scalerl_mini.scaling import fit, forecast, read_curve
    from scalerl_mini.scaling.output import as_dict, to_json
    from scalerl_mini.scaling.paper_grid import a_values, c_mid_values
    from scalerl_mini.scaling.plots import check_ending
    from scalerl_mini.scaling.report import report

    if plot:
        check_ending(plot)
    if (a_grid or c_mid_grid) and method != "paper-grid":
        raise UserError("--a-grid and --c-mid-grid belong to --method paper-grid: add it")
    result = fit(
        read_curve(source, x, y), cutoff=cutoff, min_compute=min_compute_option(min_compute), max_compute=max_compute,
        r0=r0_option(r0), level=level, law="power" if law == "power" else "sigmoid", method=method,
        a_grid=a_values(a_grid), c_mid_grid=c_mid_values(c_mid_grid),
    )  # fmt: skip
    robust = law == "auto"
    rows = forecast(result, forecasts, worth, robust)
    print(to_json(as_dict(result, rows, robust)) if as_json else report(result, rows, worth, robust))
    if plot:
        print(f"wrote {result.plot(plot)}", file=sys.stderr)
