"""The manifest of a checkpoint: size and SHA-256 of each of its files, so that a damaged one is recognised before use.

    manifest.json   {"files": {"trainer.json": {"bytes": 812, "sha256": "9f2c..."}, ...}}

It is the last file written, and everything is flushed to the disk before the folder gets its name. Against damage, not
against malice: who can change a file can change the manifest. What a model folder may hold is `model_folder`'s business.
No torch here, the launcher looks for the newest whole checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from scalerl_mini.training.checkpoint_names import version_of
from scalerl_mini.training.disk import flush

MANIFEST = "manifest.json"
STATE = "trainer.json"
OPTIMIZER = "optimizer.safetensors"
_NEEDED = ("config.json", STATE, OPTIMIZER)


class Damaged(Exception):
    """A checkpoint that must not be used; the text says why."""


def write_manifest(folder: Path) -> None:
    """Describe all files of `folder`, and flush them, the manifest and the folder to the disk."""
    files = {path.name: _describe(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")
    for path in (*folder.iterdir(), folder):
        flush(path)


def verify(checkpoint: Path) -> None:
    """Raise Damaged unless the checkpoint is, byte for byte, what was written under this name."""
    try:
        files = _read_manifest(checkpoint / MANIFEST)
        _check_names(checkpoint, files)
        for name, written in files.items():
            _check_file(checkpoint / name, written)
        version = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))["version"]
    except OSError as error:
        raise Damaged(f"{Path(error.filename or checkpoint).name} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{STATE} is not a trainer's state") from None
    if version != version_of(checkpoint):
        raise Damaged(f"{STATE} is of version {version}")


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        raise Damaged(f"{MANIFEST} is missing")
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name: {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])} for name, entry in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{MANIFEST} is not what was written") from None


def _check_names(checkpoint: Path, files: dict[str, dict[str, Any]]) -> None:
    """Plain names only, none missing and none too many: a file that is added could be loaded in the place of another."""
    for name in files:
        if name != Path(name).name or name in ("", ".", ".."):
            raise Damaged(f"{MANIFEST} names {name!r}, which is not a file of the checkpoint")
    present = {path.name for path in checkpoint.iterdir() if not path.name.startswith(".")}
    if missing := sorted({*files, *_NEEDED} - present):
        raise Damaged(f"{missing[0]} is missing")
    if unknown := sorted(present - files.keys() - {MANIFEST}):
        raise Damaged(f"{unknown[0]} is not in {MANIFEST}")


def _check_file(path: Path, written: dict[str, Any]) -> None:
    if path.is_symlink() or not path.is_file():
        raise Damaged(f"{path.name} is a link or a folder")
    if path.stat().st_size != written["bytes"]:
        raise Damaged(f"{path.name} has {path.stat().st_size} bytes, {written['bytes']} were written")
    if _describe(path) != written:
        raise Damaged(f"{path.name} was changed, its SHA-256 differs")
