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
from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.segment_names import clear_stale, run_prefix, unlink_all
from scalerl_mini.runtime.supervisor import Role, Supervisor
from scalerl_mini.training.checkpoint_names import version_of
from scalerl_mini.training.preflight import preflight
from scalerl_mini.training.resuming import newest_checkpoint
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.run_spec import RunSpec, generator_roles

POLL_S = 0.1
GRACE_S = 60.0


class Terminated(KeyboardInterrupt):
    """SIGTERM; ends a run as Ctrl-C does, with exit code 143."""


class Watcher(Protocol):
    """What the launcher tells about a run while it goes on. reason: why it asked for the end of the run, if it did."""

    reason: str | None

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
    folder, checkpoint = RunFolder(out), None
    if resume:
        checkpoint = newest_checkpoint(out)
    else:
        folder.check(overwrite)
    model = preflight(config)
    with folder.lock():
        if checkpoint:
            folder.rewind(version_of(checkpoint))
            folder.config.write_text(dump_toml(config), encoding="utf-8")
        else:
            folder.create(dump_toml(config), _record(config))
        return _run(config, folder, watcher, model, checkpoint)


def _run(config: Config, folder: RunFolder, watcher: Watcher, model: Path, checkpoint: Path | None) -> Outcome:
    """The life of the processes, and how it ended in run.json, whatever happens."""
    folder.update_record(state="running", reason=None)
    watcher.start()
    prefix = run_prefix()
    try:
        control = Control.create(f"{prefix}.control", ["trainer", *generator_roles(config)], folder.path)
        _supervise(RunSpec(config, folder.path, control.path, prefix, model, checkpoint), control, folder, watcher)
    except KeyboardInterrupt:
        folder.update_record(state="stopped", reason="interrupted")
        raise
    except Exception as failure:
        folder.update_record(state="failed", reason=str(failure).partition("\n")[0] or repr(failure))
        raise
    finally:
        unlink_all(prefix, folder.path)
    reason = watcher.reason or folder.read_record()["reason"]
    folder.update_record(state="stopped" if reason else "finished", reason=reason)
    return Outcome(folder.path, "stopped" if reason else "finished", reason)


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
