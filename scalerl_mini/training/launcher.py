"""The launcher: checks everything, starts the processes, watches them, and leaves nothing behind.

    preflight ─► run folder ─► control block ─► supervisor(trainer, generators) ─► state in run.json
                                                    └── poll: display, curve after each evaluation

It never imports torch. Ctrl-C and SIGTERM ask the processes to finish their step; the trainer then saves a checkpoint.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import platform
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scalerl_mini import __version__
from scalerl_mini.config import Config, dump_toml
from scalerl_mini.errors import UserError
from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.segment_names import clear_stale, run_prefix, unlink_all
from scalerl_mini.runtime.supervisor import ChildFailed, Role, Supervisor
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.preflight import preflight
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.run_spec import RunSpec, generator_roles

POLL_S = 0.1
GRACE_S = 60.0


class Terminated(KeyboardInterrupt):
    """SIGTERM; ends a run as Ctrl-C does, with exit code 143."""


class Watcher(Protocol):
    """What the launcher tells about a run while it goes on."""

    def start(self) -> None:
        """Called once, when the run folder is ready and before the processes start."""

    def update(self, control: Control) -> None:
        """Called about ten times a second."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its folder, `state` of run.json, and the reason when it is not "finished"."""

    folder: Path
    state: str
    reason: str | None


def launch(config: Config, out: Path, watcher: Watcher, *, overwrite: bool = False, resume: bool = False) -> Outcome:
    """Run a training job to its end. With `resume`, continue the newest checkpoint of `out`.

    Raises UserError for anything a person can mend, before anything is created; ChildFailed when a process fails;
    KeyboardInterrupt (Terminated) after an orderly stop.
    """
    clear_stale(out)
    model = preflight(config)
    folder, checkpoint = RunFolder(out), None
    if resume:
        checkpoint = newest_checkpoint(out)
        folder.rewind(version_of(checkpoint))
    else:
        folder.check(overwrite)
        folder.create(dump_toml(config), _record(config))
    folder.update_record(state="running", reason=None)
    watcher.start()
    prefix = run_prefix()
    try:
        control = Control.create(f"{prefix}.control", ["trainer", *generator_roles(config)], out)
        spec = RunSpec(config, out, control.path, prefix, checkpoint or model, checkpoint)
        _supervise(spec, control, folder, watcher)
    except ChildFailed as failure:
        folder.update_record(state="failed", reason=str(failure).splitlines()[0])
        raise
    except KeyboardInterrupt:
        folder.update_record(state="stopped", reason="interrupted")
        raise
    finally:
        unlink_all(prefix, out)
    reason = folder.read_record()["reason"]
    folder.update_record(state="stopped" if reason else "finished")
    return Outcome(out, "stopped" if reason else "finished", reason)


def newest_checkpoint(run: Path) -> Path:
    """The checkpoint a resumed run starts from. Raises UserError when there is none."""
    found = list_checkpoints(run / "checkpoints")
    if not found:
        raise UserError(f"{run} has no checkpoint to resume from; start anew with --out")
    return found[0]


def _supervise(spec: RunSpec, control: Control, folder: RunFolder, watcher: Watcher) -> None:
    runtime = spec.config.runtime
    roles = [Role("trainer", "scalerl_mini.training.processes:run_trainer", (spec,))]
    for number, name in enumerate(generator_roles(spec.config)):
        roles.append(Role(name, "scalerl_mini.training.processes:run_generator", (spec, number)))
    supervisor = Supervisor(
        roles,
        control,
        folder.logs,
        runtime.heartbeat_timeout_s,
        start_timeout_s=runtime.wait_timeout_s,
        grace_s=GRACE_S,
    )
    with _sigterm_interrupts(), supervisor:
        while not supervisor.poll():
            watcher.update(control)
            time.sleep(POLL_S)
    watcher.update(control)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    def terminate(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _record(config: Config) -> dict[str, Any]:
    """run.json of a run that starts now."""
    packages = ("torch", "transformers", "numpy", "safetensors")
    return {
        "state": "running",
        "reason": None,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": config.seed,
        "model": config.model.name,
        "device": config.runtime.trainer_device,
        "devices": [config.runtime.trainer_device] + [config.runtime.generator_device] * config.runtime.generators,
        "versions": {
            "scalerl-mini": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
    }
