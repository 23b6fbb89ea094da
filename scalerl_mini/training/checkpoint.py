"""Checkpoints: a plain Hugging Face model folder plus the trainer's state, written atomically, without pickle.

    checkpoints/step-00100/
        config.json model.safetensors tokenizer...     loads in transformers and vLLM
        optimizer.safetensors                           Adam moments (and fp32 masters of a bf16 body)
        trainer.json                                    version, curriculum, outstanding prompts, compute meter
        manifest.json                                   size and SHA-256 of each of these files

A checkpoint is written to a temporary folder, every file is flushed to the disk, and the folder is renamed: it is there
entirely or not at all. Older ones are deleted only after that, and lose their name first.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from scalerl_mini.policy.model import Policy
from scalerl_mini.training.checkpoint_names import checkpoint_name, list_checkpoints
from scalerl_mini.training.disk import flush, writing
from scalerl_mini.training.manifest import OPTIMIZER, STATE, write_manifest
from scalerl_mini.training.optimizer import Optimizer


def save_checkpoint(folder: Path, policy: Policy, optimizer: Optimizer, state: dict[str, Any], keep: int) -> Path:
    """Write `folder/step-<version>` and delete all but the newest `keep` checkpoints.

    Raises UserError when the disk does not take it; what was saved before is then untouched.
    """
    target = folder / checkpoint_name(policy.version)
    if target.exists():
        return target
    with writing(target):
        for unfinished in folder.glob(".step-*.tmp"):  # of a save or a removal that was killed
            _remove(unfinished)
        temporary = _hidden(target)
        temporary.mkdir(parents=True)
        try:
            _write(temporary, policy, optimizer, state)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        os.rename(temporary, target)
        flush(folder)
        for old in list_checkpoints(folder)[keep:]:
            os.rename(old, _hidden(old))
            _remove(_hidden(old))
    return target


def _remove(path: Path) -> None:
    """Delete a checkpoint; of one that is a link, to a larger disk for example, the link only."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path)


def _write(folder: Path, policy: Policy, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """All files of a checkpoint, the manifest last, flushed to the disk. Raises OSError."""
    try:
        policy.save(folder)
        save_file({key: value.contiguous() for key, value in optimizer.tensors().items()}, folder / OPTIMIZER)
    except SafetensorError as error:  # its own word for a write that failed
        number = int(found[1]) if (found := re.search(r"os error (\d+)", str(error))) else errno.EIO
        raise OSError(number, os.strerror(number)) from error
    (folder / STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")
    write_manifest(folder)


def _hidden(checkpoint: Path) -> Path:
    """Name of a checkpoint that is not there yet, or no longer."""
    return checkpoint.with_name(f".{checkpoint.name}.tmp")


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The trainer's state of a checkpoint."""
    return json.loads((checkpoint / STATE).read_text(encoding="utf-8"))


def restore_optimizer(checkpoint: Path, optimizer: Optimizer, updates: int) -> None:
    """Load the optimiser's tensors of a checkpoint."""
    tensors: dict[str, torch.Tensor] = load_file(checkpoint / OPTIMIZER)
    optimizer.restore(tensors, updates)
