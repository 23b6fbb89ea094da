"""`scalerl-mini recipes`: the recipes side by side, or one of them with its comments."""

from __future__ import annotations

import itertools

import click


@click.command(name="recipes", short_help="Show the recipes of the paper side by side, or one of them.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Show the recipes of the paper side by side, or one with a comment on each key.

    What a recipe does not name keeps its default, so sizes, lengths and learning rate are the same for all; a dash is a
    constant that the recipe's loss does not have.

    Example: scalerl-mini recipes scalerl
    """
    from scalerl_mini.recipes import recipe_text

    click.echo(recipe_text(name).rstrip("\n") if name else "\n".join(_table()))


def _table() -> list[str]:
    """At most 80 columns: the groups of keys are lines of their own."""
    from scalerl_mini.recipes import flatten, recipe_names, recipe_tree

    recipes = {name: flatten(recipe_tree(name)) for name in recipe_names()}
    keys = sorted(dict.fromkeys(key for values in recipes.values() for key in values))
    width = 2 + max(len(key.rpartition(".")[2]) for key in keys)
    lines = [" ".join((" " * width, *recipes))]
    for group, members in itertools.groupby(keys, key=lambda key: key.rpartition(".")[0]):
        lines += ["", group]
        for key in members:
            cells = (f"{_text(values.get(key)):<{len(name)}}" for name, values in recipes.items())
            lines.append(" ".join((f"  {key.rpartition('.')[2]:<{width - 2}}", *cells)).rstrip())
    return lines


def _text(value: object) -> str:
    """A value as TOML writes it."""
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
