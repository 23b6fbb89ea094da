"""Checkpoints: a plain Hugging Face model folder plus the trainer's state, written atomically, without pickle.

    checkpoints/step-00100/
        config.json model.safetensors tokenizer...     loads in transformers and vLLM
        optimizer.safetensors                           Adam moments (and fp32 masters of a bf16 body)
        trainer.json                                    version, curriculum, outstanding prompts, compute meter, log rows

A checkpoint is written to a temporary folder, every file is flushed to the disk, and the folder is renamed: it is there
entirely or not at all. Older ones are deleted only after that.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from scalerl_mini.policy.model import Policy
from scalerl_mini.training.checkpoint_names import checkpoint_name, list_checkpoints
from scalerl_mini.training.optimizer import Optimizer


def save_checkpoint(folder: Path, policy: Policy, optimizer: Optimizer, state: dict[str, Any], keep: int) -> Path:
    """Write `folder/step-<version>` and delete all but the newest `keep` checkpoints."""
    target = folder / checkpoint_name(policy.version)
    if target.exists():
        return target
    temporary = folder / f".{target.name}.tmp"
    for unfinished in folder.glob(".step-*.tmp"):  # of a save that was killed
        shutil.rmtree(unfinished)
    temporary.mkdir(parents=True)
    policy.save(temporary)
    save_file(
        {key: value.contiguous() for key, value in optimizer.tensors().items()}, temporary / "optimizer.safetensors"
    )
    (temporary / "trainer.json").write_text(json.dumps(state) + "\n", encoding="utf-8")
    for path in (*temporary.iterdir(), temporary):
        _flush(path)
    os.rename(temporary, target)
    _flush(folder)
    for old in list_checkpoints(folder)[keep:]:
        shutil.rmtree(old)
    return target


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The trainer's state of a checkpoint."""
    return json.loads((checkpoint / "trainer.json").read_text(encoding="utf-8"))


def restore_optimizer(checkpoint: Path, optimizer: Optimizer, updates: int) -> None:
    """Load the optimiser's tensors of a checkpoint."""
    tensors: dict[str, torch.Tensor] = load_file(checkpoint / "optimizer.safetensors")
    optimizer.restore(tensors, updates)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
