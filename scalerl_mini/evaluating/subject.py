"""What is evaluated: from a name on the command line to a folder of weights and the configuration to sample them by.

    runs/first                          a run: its newest whole checkpoint, or the one asked for; its config.toml
    runs/first/checkpoints/step-00100   that checkpoint of that run; its config.toml
    path/to/model, owner/name           any model: the configuration that is given, else PLAIN over the defaults
    builtin:tiny-adder                  as any model, but the defaults are made for it

No torch here: all that can be refused is refused before it is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from scalerl_mini.config import Config, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.manifest import Damaged, verify
from scalerl_mini.training.preflight import resolve_model
from scalerl_mini.training.resuming import newest_checkpoint
from scalerl_mini.training.run_folder import MARKER, RunFolder

LATEST = "latest"
BUILT_IN = "builtin:"
# Of a model that comes without a run: it ends its thinking itself, has room for an answer, and all cores.
PLAIN = (
    "rollout.interruption.enabled=false",
    "rollout.max_new_tokens=1024",
    "rollout.slots=32",
    f"runtime.threads={os.cpu_count() or 1}",
)


@dataclass(frozen=True)
class Subject:
    """name: as given. folder: of the weights. version: optimiser steps applied to them by its run, else 0.

    knows_task: the configuration says what to ask; a plain model's does not.
    """

    name: str
    folder: Path
    version: int
    config: Config
    knows_task: bool


def find_subject(
    name: str, checkpoint: str | None = None, config_path: Path | None = None, settings: tuple[str, ...] = ()
) -> Subject:
    """checkpoint: "latest", or a step of a run, 0 being its start model. settings: `key=value`, laid over the rest.

    Raises UserError when there is no such model, run or checkpoint.
    """
    path = Path(name)
    run, step = path, checkpoint or LATEST
    if path.absolute().parent.name == "checkpoints" and _is_run(path.absolute().parents[1]):
        if checkpoint:
            raise UserError(f"--checkpoint {checkpoint}: {name} is a checkpoint already; name the run or leave it away")
        if path.absolute() not in list_checkpoints(path.absolute().parent):
            raise UserError(f"checkpoint {name} does not exist; the run has {_existing(path.absolute().parents[1])}")
        run, step = path.absolute().parents[1], str(version_of(path.absolute()))
    if _is_run(run):
        if config_path:
            raise UserError(f"--config {config_path}: run {run} has a configuration of its own; change it by --set")
        config = load_config(run / "config.toml", settings)
        folder, version = _checkpoint(run, step, config)
        return Subject(name, folder, version, config, knows_task=True)
    if checkpoint:
        raise UserError(f"--checkpoint {checkpoint}: {name} is no run folder ({MARKER} is missing); check the path")
    plain = () if config_path or name.startswith(BUILT_IN) else PLAIN
    config = load_config(config_path, (*plain, *settings))
    return Subject(name, resolve_model(name), 0, config, knows_task=not plain)


def _is_run(folder: Path) -> bool:
    return (folder / MARKER).is_file() and (folder / "config.toml").is_file()


def _checkpoint(run: Path, step: str, config: Config) -> tuple[Path, int]:
    """Folder and version of a run's checkpoint. Raises UserError when it is not there, or not as it was written."""
    folder = RunFolder(run).checkpoints
    if step == LATEST:
        if not list_checkpoints(folder):
            raise UserError(f"run {run} has no checkpoint yet; --checkpoint 0 evaluates the model it started from")
        found = newest_checkpoint(run)
        return found, version_of(found)
    if step == "0":
        return resolve_model(config.model.name), 0
    if not step.isdecimal():
        raise UserError(f"--checkpoint {step!r:.80}: give a step, or {LATEST}")
    by_version = {version_of(checkpoint): checkpoint for checkpoint in list_checkpoints(folder)}
    if int(step) not in by_version:
        raise UserError(f"--checkpoint {step}: run {run} has {_existing(run)}")
    try:
        verify(by_version[int(step)])
    except Damaged as damage:
        raise UserError(f"checkpoint {by_version[int(step)]} is damaged ({damage}); evaluate another one") from None
    return by_version[int(step)], int(step)


def _existing(run: Path) -> str:
    found = sorted(map(version_of, list_checkpoints(RunFolder(run).checkpoints)))
    return f"checkpoints of steps {', '.join(map(str, found))}" if found else "no checkpoints"
