"""Where a stopped run is picked up, and what may be different from then on. No torch here.

A resumed run is the same run: its curve, its compute and the order of its prompts go on. So only what changes none of
them may be set anew - how long it trains, on which devices, in pieces of what size, and under which deadlines. What was
changed is kept in run.json.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.disk import write_whole, writing
from scalerl_mini.training.manifest import STATE, Damaged, verify
from scalerl_mini.training.run_folder import MARKER, RunFolder, timestamp

log = logging.getLogger(__name__)

MAY_CHANGE = (
    "task.grade_workers",
    "training.steps",
    "training.micro_batch_tokens",
    "training.gradient_checkpointing",
    "rollout.slots",
    "evaluation.stop_when_gain_below",
    "evaluation.stop_horizon",
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
    "runtime.trackers",
)


def resumed_config(run: Path, settings: tuple[str, ...]) -> Config:
    """The configuration of the run in folder `run` with `key=value` settings laid over it.

    Raises UserError when there is no run, or when a setting would make it another run.
    """
    for name in ("config.toml", MARKER):
        if not (run / name).is_file():
            raise UserError(f"--resume {run}: no run there ({name} is missing); check the path")
    before, after = load_config(run / "config.toml"), load_config(run / "config.toml", settings)
    forbidden = [key for key in changes(before, after) if key not in MAY_CHANGE]
    if len(before.runtime.generator_devices) != len(after.runtime.generator_devices) and not forbidden:
        forbidden = ["the number of generators"]  # device-hours count all of them from the start
    if forbidden:
        raise UserError(
            f"--resume {run}: {', '.join(forbidden)} cannot change within a run; leave it as it is, or start anew with --out"
        )
    return after


def go_on(folder: RunFolder, config: Config) -> Path:
    """Put a run's folder back to its newest whole checkpoint, which is returned, and note in run.json when the run went
    on from where, with which settings changed. Call it under the folder's lock."""
    checkpoint = newest_checkpoint(folder.path)
    version, record = version_of(checkpoint), folder.read_record()
    changed = changes(load_config(folder.config), config)
    kept = folder.rewind(version)
    saved = json.loads((checkpoint / STATE).read_text(encoding="utf-8")).get("rows", {})
    for name, rows in saved.items():
        if kept[name] < rows:
            log.warning(
                "%s.jsonl has %d of the %d rows that were written up to step %d; the run goes on without the others",
                folder.path / name, kept[name], rows, version,
            )  # fmt: skip
    entry = {"when": timestamp(), "from_version": version, "changed": changed}
    folder.update_record(history=[*record.get("history", []), entry])
    with writing(folder.config):
        write_whole(folder.config, dump_toml(config))
    return checkpoint


def changes(before: Config, after: Config) -> dict[str, list[Any]]:
    """Keys whose values differ, each with its old and its new value."""
    old, new = dict(_flat(before.model_dump())), dict(_flat(after.model_dump()))
    keys = [*new, *(key for key in old if key not in new)]
    return {
        key: [old.get(key), new.get(key)] for key in keys if key not in old or key not in new or old[key] != new[key]
    }


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
