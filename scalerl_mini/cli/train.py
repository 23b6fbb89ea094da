"""`scalerl-mini train`: parse, launch, say how it ended."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command(name="train", short_help="Train a policy by asynchronous RL and draw its scaling curve.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="TOML configuration file.")
@click.option("--recipe", metavar="NAME", help="Lay a recipe of the paper over the defaults; see `recipes`.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key, e.g. training.steps=20.")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder to create [default: runs/NAME by time].")
@click.option("--resume", type=click.Path(path_type=Path), help="Run folder to continue from its newest checkpoint.")
@click.option("--overwrite", is_flag=True, help="Replace the run that is already in --out.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the run; short for --set seed=N.")
@click.option("--engine", type=click.Choice(["torch", "vllm"]), help="Generation engine.")
@click.option("--generator-device", help="Device of the generators, e.g. cuda:0, or of each: cuda:0,cuda:2.")
@click.option("--trainer-device", help="Device of the trainer, e.g. cuda:1.")
@click.option("--dry-run", is_flag=True, help="Print the whole resolved configuration as TOML and stop.")
def command(
    config_path: Path | None,
    recipe: str | None,
    settings: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
    overwrite: bool,
    seed: int | None,
    engine: str | None,
    generator_device: str | None,
    trainer_device: str | None,
    dry_run: bool,
) -> None:
    """Train a policy by asynchronous RL: generator and trainer in processes of their own, held-out evaluation on the way,
    a scaling curve with its fit at the end.

    Without options the embedded CPU job runs: a tiny model learns column addition in about five minutes.

    Example: scalerl-mini train --out runs/first --set training.steps=100 --seed 1
    """
    from scalerl_mini.config import dump_toml, load_config
    from scalerl_mini.errors import UserError
    from scalerl_mini.training.resuming import resumed_config

    shortcuts = {
        "seed": seed,
        "rollout.engine": engine,
        "runtime.generator_device": generator_device,
        "runtime.trainer_device": trainer_device,
    }
    settings += tuple(f"{key}={value}" for key, value in shortcuts.items() if value is not None)
    if resume and (out or config_path or recipe or overwrite):
        raise UserError("--resume continues a run as it is; leave --out, --config, --recipe and --overwrite away")
    config = resumed_config(resume, settings) if resume else load_config(config_path, settings, recipe)
    if dry_run:
        click.echo(dump_toml(config), nl=False)
        return
    sys.exit(_run(config, resume or out or _new_folder(), resume=resume is not None, overwrite=overwrite))


def _run(config, folder: Path, *, resume: bool, overwrite: bool) -> int:  # type: ignore[no-untyped-def]
    """Launch and report; returns the exit code."""
    from rich.console import Console

    from scalerl_mini.runtime.supervisor import ChildFailed
    from scalerl_mini.training.checkpoint_names import list_checkpoints
    from scalerl_mini.training.launcher import Terminated, launch
    from scalerl_mini.training.watch import RunWatcher

    console = Console(stderr=True)
    watcher = RunWatcher(folder, config, console)
    try:
        outcome = launch(config, folder, watcher, overwrite=overwrite, resume=resume)
    except ChildFailed as failure:
        console.print(f"failed: {failure}", style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt as interrupt:
        saved = list_checkpoints(folder / "checkpoints")
        way_on = f"continue with: scalerl-mini train --resume {folder}" if saved else "there is no checkpoint yet"
        console.print(f"stopped; {way_on}", highlight=False, markup=False, soft_wrap=True)
        return 143 if isinstance(interrupt, Terminated) else 130
    finally:
        watcher.close()
    for line in _diagnosis(folder):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    ending = f"{outcome.state}: {outcome.reason}" if outcome.reason else outcome.state
    written = [folder / name for name in ("curve.png", "steps.jsonl", "evals.jsonl") if (folder / name).exists()]
    console.print(f"{ending}; see {', '.join(map(str, written))}", highlight=False, markup=False, soft_wrap=True)
    return 0


def _diagnosis(folder: Path) -> list[str]:
    """Lines about the ended run; logs that somebody has spoilt must not change how it ended."""
    from scalerl_mini.errors import UserError
    from scalerl_mini.training.diagnostics import diagnose

    try:
        found = diagnose(folder)
    except (UserError, OSError, ValueError, LookupError, TypeError) as error:
        return [f"no diagnosis: {error}"]
    return found.lines() if found else []


def _new_folder() -> Path:
    import datetime

    return Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
