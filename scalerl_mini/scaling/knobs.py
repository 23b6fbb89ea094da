"""Which setting differs between two run folders, so that a change of ceiling or efficiency has a name."""

from __future__ import annotations

import tomllib
from pathlib import Path

IGNORED = ("seed", "out", "name")


def settings(source: Path) -> dict[str, object]:
    """The flattened configuration of a run folder ({} for anything else)."""
    path = source / "config.toml"
    if not path.is_file():
        return {}
    try:
        return dict(_flat(tomllib.loads(path.read_text())))
    except (OSError, ValueError):
        return {}


def _flat(tree: dict, prefix: str = ""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif key not in IGNORED:
            yield f"{prefix}{key}", value


def differences(first: Path, second: Path) -> dict[str, tuple[object, object]]:
    """Settings that differ, as {key: (first, second)}; empty when either has no configuration."""
    a, b = settings(first), settings(second)
    if not a or not b:
        return {}
    return {k: (a.get(k), b.get(k)) for k in sorted({*a, *b}) if a.get(k) != b.get(k)}
