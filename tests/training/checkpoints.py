"""Checkpoint folders for tests that need no model: right in form, small, and all that `verify` looks at."""

from __future__ import annotations

import json
from pathlib import Path

from scalerl_mini.training.checkpoint_names import checkpoint_name
from scalerl_mini.training.manifest import OPTIMIZER, STATE, write_manifest

WEIGHTS = "model.safetensors"


def made_up_checkpoint(run: Path, version: int) -> Path:
    """`run/checkpoints/step-<version>` with rubbish for weights."""
    folder = run / "checkpoints" / checkpoint_name(version)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for number, name in enumerate((WEIGHTS, OPTIMIZER)):
        (folder / name).write_bytes(bytes([version % 251, number]) * 2000)
    (folder / STATE).write_text(json.dumps({"version": version}))
    write_manifest(folder)
    return folder
