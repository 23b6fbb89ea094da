"""Where a stopped run is picked up, and what may be different from then on. No torch here.

A resumed run is the same run: its curve, its compute and the order of its prompts go on. So only what changes neither
may be set anew - how long it trains, and on which devices and under which deadlines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scalerl_mini.config import Config, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.manifest import Damaged, verify
from scalerl_mini.training.run_folder import MARKER

log = logging.getLogger(__name__)

MAY_CHANGE = (
    "task.grade_workers",
    "training.steps",
    "training.bad_steps_allowed",
    "training.flat_steps_allowed",
    "runtime.generator_device",
    "runtime.trainer_device",
    "runtime.threads",
    "runtime.checkpoint_every",
    "runtime.keep_checkpoints",
    "runtime.wait_timeout_s",
    "runtime.heartbeat_timeout_s",
    "runtime.restarts",
)


def resumed_config(run: Path, settings: tuple[str, ...]) -> Config:
    """The configuration of the run in folder `run` with `key=value` settings laid over it.

    Raises UserError when there is no run, or when a setting would make it another run.
    """
    for name in ("config.toml", MARKER):
        if not (run / name).is_file():
            raise UserError(f"--resume {run}: no run there ({name} is missing); check the path")
    before, after = load_config(run / "config.toml"), load_config(run / "config.toml", settings)
    old = dict(_flat(before.model_dump()))
    changed = [key for key, value in _flat(after.model_dump()) if key not in old or old[key] != value]
    forbidden = [key for key in changed if key not in MAY_CHANGE]
    if forbidden:
        raise UserError(
            f"--resume {run}: {', '.join(forbidden)} cannot change within a run; leave it as it is, or start anew with --out"
        )
    return after


def newest_checkpoint(run: Path) -> Path:
    """The newest whole checkpoint, the one a resumed run starts from; newer ones that are damaged are named in a line.

    Raises UserError when there is none, with what is wrong with each.
    """
    damages = []
    for checkpoint in list_checkpoints(run / "checkpoints"):
        try:
            verify(checkpoint)
        except Damaged as damage:
            damages.append(f"{checkpoint.name}: {damage}")
            continue
        if damages:
            log.warning("damaged and not used: %s; going on from %s", "; ".join(damages), checkpoint)
        return checkpoint
    if damages:
        raise UserError(
            f"{run} has no whole checkpoint to resume from ({'; '.join(damages)}); restore one or start anew with --out"
        )
    raise UserError(f"{run} has no checkpoint to resume from; start anew with --out")


def _flat(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
