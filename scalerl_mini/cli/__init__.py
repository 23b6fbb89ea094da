"""The command line: one command per file, each of which parses, calls and renders - no logic here.

Commands are imported only when they are called, so `--help` answers without importing numpy, pydantic or torch.
"""

from __future__ import annotations

import importlib
import sys

import click

from scalerl_mini import __version__
from scalerl_mini.errors import UserError

COMMANDS = {
    "train": ("scalerl_mini.cli.train", "Train a policy by asynchronous RL and draw its scaling curve."),
    "eval": ("scalerl_mini.cli.eval", "Ask a run's checkpoint or any model: mean, pass@k, errors, by level."),
    "recipes": ("scalerl_mini.cli.recipes", "Show the recipes of the paper side by side, or one of them."),
    "ablate": ("scalerl_mini.cli.ablate", "Train variants of a recipe with several seeds and rank them."),
    "fit": ("scalerl_mini.cli.fit", "Fit the sigmoid law to a curve and forecast where it is going."),
    "compare": ("scalerl_mini.cli.compare", "Compare recipes: ceiling, lead at a compute, efficiency."),
    "simulate": ("scalerl_mini.cli.simulate", "Synthetic curves, and how far the fitter can be trusted."),
}


class LazyGroup(click.Group):
    """A click group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        return module.command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="scalerl-mini")
def cli() -> None:
    """Asynchronous RL for language models on one workstation, and the compute law it follows.

    Example: scalerl-mini train --out runs/first && scalerl-mini fit runs/first
    """


def main() -> None:
    """Entry point: exit 0 on success, 2 on bad input, 130 on Ctrl-C, 1 when something failed."""
    try:
        cli.main(standalone_mode=False)
    except UserError as error:
        _refuse(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        _refuse(f"{error.format_message()} See {context.command_path if context else 'scalerl-mini'} --help")
    except OSError as error:  # a name too long, a full disk, a loop of links: the system's word is the cause
        click.echo("error: " + " ".join(f"{error.strerror or error}: {error.filename or ''}"[:500].split()), err=True)
        sys.exit(1)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)


def _refuse(message: str) -> None:
    """Bad input: one line, exit 2."""
    click.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
