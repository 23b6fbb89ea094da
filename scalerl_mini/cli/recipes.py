"""`scalerl-mini recipes`: the recipes side by side, or one of them with its comments."""

from __future__ import annotations

import click


@click.command(name="recipes", short_help="Show the recipes of the paper side by side, or one of them.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Show the recipes of the paper side by side, or one with a comment on each key.

    Example: scalerl-mini recipes scalerl
    """
    from scalerl_mini.recipes import flatten, recipe_names, recipe_text, recipe_tree

    if name:
        click.echo(recipe_text(name), nl=False)
        return
    from rich.console import Console
    from rich.table import Table

    recipes = {recipe: flatten(recipe_tree(recipe)) for recipe in recipe_names()}
    keys = dict.fromkeys(key for values in recipes.values() for key in values)
    table = Table("key", *recipes, box=None)
    for key in keys:
        table.add_row(key, *(str(values.get(key, "")) for values in recipes.values()))
    Console(width=max(120, Console().width)).print(table)
