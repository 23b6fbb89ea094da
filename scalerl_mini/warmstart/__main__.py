"""Rebuild the shipped model: `python -m scalerl_mini.warmstart --seed 0 --out DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from scalerl_mini.warmstart.model import SIZES, build_model
from scalerl_mini.warmstart.shipping import ship
from scalerl_mini.warmstart.tokenizer import build_tokenizer
from scalerl_mini.warmstart.trainer import warm_start


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seed", type=int, default=0, help="Seed of the first weights and of the demonstrations.")
@click.option("--size", type=click.Choice(list(SIZES)), default="tiny", help="Width and depth of the model.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write.")
@click.option("--min-digits", type=click.IntRange(1, 12), default=2, help="Digits of the shortest problems.")
@click.option("--max-digits", type=click.IntRange(1, 12), default=6, help="Digits of the longest problems.")
def main(seed: int, size: str, out: Path, min_digits: int, max_digits: int) -> None:
    """Train the tiny model of the built-in task by imitation, in a minute or two on one core.

    Example: python -m scalerl_mini.warmstart --seed 0 --out models/tiny-adder
    """
    if min_digits > max_digits:
        raise click.BadParameter("--min-digits is above --max-digits; swap them")
    model, tokenizer = build_model(SIZES[size], seed), build_tokenizer()
    warm_start(model, tokenizer, seed, (min_digits, max_digits), _print_every_50th)
    ship(model, tokenizer, out, seed=seed, size=size, digits=(min_digits, max_digits))
    click.echo(f"wrote {out}")


def _print_every_50th(phase: str, step: int, loss: float) -> None:
    if step % 50 == 0:
        print(f"{phase:7s} step {step:4d}  loss {loss:.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(prog_name="python -m scalerl_mini.warmstart")
