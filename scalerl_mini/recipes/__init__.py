"""The recipes of the paper, each a table that a person can read; `train --recipe NAME` lays one over the defaults."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from scalerl_mini.errors import UserError

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """Names of the recipes, ScaleRL first."""
    return sorted((path.stem for path in FOLDER.glob("*.toml")), key=lambda name: (name != "scalerl", name))


def recipe_text(name: str) -> str:
    """A recipe as its file stands, comments included. Raises UserError for an unknown name."""
    if name not in recipe_names():
        raise UserError(f"recipe {name!r} is unknown; recipes: {', '.join(recipe_names())}")
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def recipe_tree(name: str) -> dict[str, Any]:
    """A recipe as a tree of configuration keys."""
    return tomllib.loads(recipe_text(name))


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree as {"group.key": value}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
