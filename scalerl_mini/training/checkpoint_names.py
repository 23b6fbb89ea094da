"""Names of checkpoint folders, without torch: the launcher looks for them, the trainer writes them."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"step-(\d+)$")


def checkpoint_name(version: int) -> str:
    """Folder name of the checkpoint of a policy version."""
    return f"step-{version:05d}"


def version_of(checkpoint: Path) -> int:
    """Policy version of a checkpoint folder."""
    return int(checkpoint.name.removeprefix("step-"))


def list_checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, newest first."""
    found = [path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=version_of, reverse=True)
