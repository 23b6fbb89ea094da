"""The launcher: checks everything, starts the processes, watches them, and leaves nothing behind.

    preflight ─► run folder ─► control block ─► supervisor(trainer, generators) ─► state in run.json
                      ▲                             ├── poll: display, curve after each evaluation
                      │                             ├── a generator died: its work given back, started again
                      └── back to a checkpoint ─────┴── the trainer died: the others are stopped too

A life ends with the trainer's death or with the run; each has shared memory of its own. `runtime.restarts` bounds both.
It never imports torch. Ctrl-C and SIGTERM ask the processes to finish their step; the trainer then saves a checkpoint.
A second one does not wait for that.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scalerl_mini import __version__
from scalerl_mini.config import Config, dump_toml
from scalerl_mini.errors import UserError
from scalerl_mini.rollout.vllm_package import installed_vllm
from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.segment_names import clear_stale, run_prefix, unlink_all
from scalerl_mini.runtime.supervisor import FAILURE_GRACE_S, ChildFailed, Role, Supervisor, interrupts_blocked
from scalerl_mini.training.checkpoint_names import list_checkpoints, version_of
from scalerl_mini.training.preflight import preflight
from scalerl_mini.training.restarts import Restarts, give_back
from scalerl_mini.training.resuming import go_on, newest_checkpoint
from scalerl_mini.training.run_folder import RunFolder, timestamp
from scalerl_mini.training.run_spec import TRAINER, RunSpec, generator_roles

TRAINER_ENTRY = "scalerl_mini.training.processes:run_trainer"
GENERATOR_ENTRY = "scalerl_mini.training.processes:run_generator"
POLL_S = 0.1
GRACE_S = 60.0


class Terminated(KeyboardInterrupt):
    """SIGTERM; ends a run as Ctrl-C does, with exit code 143."""


class Watcher(Protocol):
    """What the launcher tells about a run while it goes on. reason: why it asked for the end of the run, if it did."""

    reason: str | None

    def start(self) -> None:
        """Called when the run folder is ready and before the processes start, for each life of the run."""

    def tell(self, text: str) -> None:
        """Called when a process has died and is started again."""

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

    Raises UserError for anything a person can mend, before anything is created; ChildFailed when processes fail too often;
    KeyboardInterrupt (Terminated) after an orderly stop.
    """
    clear_stale(out)
    folder, checkpoint = RunFolder(out), None
    if not resume:
        folder.check(overwrite)
    model = preflight(config)
    with folder.lock():
        if resume:
            checkpoint = go_on(folder, config)
        else:
            folder.create(dump_toml(config), _record(config))
        with fault_kept(folder.logs / "launcher.log"):
            return _run(config, folder, watcher, model, checkpoint)


@contextlib.contextmanager
def fault_kept(path: Path) -> Iterator[None]:
    """An exception that nobody foresaw leaves its traceback in `path`, also when nobody reads the terminal."""
    try:
        yield
    except (UserError, ChildFailed):
        raise
    except Exception:
        with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(f"{timestamp()}\n{traceback.format_exc()}")
        raise


def _run(config: Config, folder: RunFolder, watcher: Watcher, model: Path, checkpoint: Path | None) -> Outcome:
    """One life of the processes after another, and how it ended in run.json, whatever happens."""
    restarts = Restarts(config.runtime.restarts, folder)
    try:
        with sigterm_interrupts():
            while death := _live(config, folder, watcher, model, checkpoint, restarts):
                checkpoint = _go_back(folder)
                watcher.tell(f"{death}; going on from {checkpoint.name if checkpoint else 'the start'}")
    except KeyboardInterrupt:
        with interrupts_blocked():
            folder.note(state="stopped", reason="interrupted")
        raise
    except Exception as failure:
        folder.note(state="failed", reason=str(failure).partition("\n")[0] or repr(failure))
        raise
    reason = watcher.reason or folder.read_record()["reason"]
    folder.update_record(state="stopped" if reason else "finished", reason=reason)
    return Outcome(folder.path, "stopped" if reason else "finished", reason)


def _live(
    config: Config, folder: RunFolder, watcher: Watcher, model: Path, checkpoint: Path | None, restarts: Restarts
) -> str | None:
    """One life of the processes, with shared memory of its own. Returns None when the run is over, and otherwise who died
    of what: a new life may begin, the time to wait before it has passed."""
    folder.update_record(state="running", reason=None)
    watcher.start()
    prefix = run_prefix()
    try:
        control = Control.create(f"{prefix}.control", [TRAINER, *generator_roles(config)], folder.path)
        spec = RunSpec(config, folder.path, control.path, prefix, model, checkpoint)
        death = _supervise(spec, control, folder, watcher, restarts)
        version = int(control.get(TRAINER, "loaded_version"))
        control.close()
    finally:
        with interrupts_blocked():
            unlink_all(prefix, folder.path)
    if death is None:
        return None
    time.sleep(restarts.after(death, version))
    return f"{death.role} {death.cause}"


def _supervise(
    spec: RunSpec, control: Control, folder: RunFolder, watcher: Watcher, restarts: Restarts
) -> ChildFailed | None:
    """Watch the processes to their end, replacing generators that die; the death that ends this life, if one does."""
    runtime = spec.config.runtime
    roles = [Role(TRAINER, TRAINER_ENTRY, (spec,))]
    roles += [Role(name, GENERATOR_ENTRY, (spec, number)) for number, name in enumerate(generator_roles(spec.config))]
    supervisor = Supervisor(
        roles,
        control,
        folder.logs,
        runtime.heartbeat_timeout_s,
        start_timeout_s=runtime.wait_timeout_s,
        grace_s=GRACE_S,
    )
    with supervisor:
        files: list[Path] = []
        while True:
            try:
                if supervisor.poll():
                    break
            except ChildFailed as death:
                if death.role == TRAINER or not _replace(death, spec, control, supervisor, watcher, restarts):
                    supervisor.stop(FAILURE_GRACE_S, "failure")
                    return death
            if not files and (files := spec.file_backed):
                names = ", ".join(path.name.rpartition(".")[2] for path in files)
                watcher.tell(f"/dev/shm is too small: {names} in files of {spec.folder} instead, which is slower")
            watcher.update(control)
            time.sleep(POLL_S)
    watcher.update(control)
    return None


def _replace(
    death: ChildFailed, spec: RunSpec, control: Control, supervisor: Supervisor, watcher: Watcher, restarts: Restarts
) -> bool:
    """Start a dead generator again, its work given back; False when that cannot be done. One that dies after the end of
    the training is let go."""
    if control.stopping:
        supervisor.restart(death.role)
        return True
    try:
        given_back = give_back(spec, control, death.role, spec.config.runtime.heartbeat_timeout_s)
    except TimeoutError:
        return False
    delay_s = restarts.after(death, int(control.get(TRAINER, "loaded_version")))
    supervisor.restart(death.role, delay_s)
    watcher.tell(f"{death.role} {death.cause}; started again, {given_back}")
    return True


def _go_back(folder: RunFolder) -> Path | None:
    """Back to the newest checkpoint, or to the start: rows of later steps leave the logs."""
    checkpoint = newest_checkpoint(folder.path) if list_checkpoints(folder.checkpoints) else None
    folder.rewind(version_of(checkpoint) if checkpoint else 0)
    return checkpoint


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM inside raises Terminated."""

    def terminate(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _record(config: Config) -> dict[str, Any]:
    """run.json of a run that starts now."""
    packages = ["torch", "transformers", "numpy", "safetensors"]
    if config.rollout.engine == "vllm" and (found := installed_vllm()):
        packages.append(found[0])
    return {
        "state": "running",
        "reason": None,
        "started": timestamp(),
        "seed": config.seed,
        "model": config.model.name,
        "device": config.runtime.trainer_device,
        "devices": [config.runtime.trainer_device, *config.runtime.generator_devices],
        "versions": {
            "scalerl-mini": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
    }
