"""Run what has not ended, one after another or side by side.

Each run is a process of its own, so a failure or a kill costs one run; called again, the study resumes what was interrupted.
When the study itself is killed hard, the run it had started goes on: the next call finds it alive and waits for it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scalerl_mini.ablation.study import Study
from scalerl_mini.ablation.variants import Variant
from scalerl_mini.config import dump_toml
from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.launcher import sigterm_interrupts
from scalerl_mini.training.run_folder import RunFolder

Run = tuple[Variant, int]
Tell = Callable[[str], None]
TRAIN = (sys.executable, "-m", "scalerl_mini", "train")
POLL_S = 0.2


def ended(folder: Path) -> bool:
    """Whether a run came to its own end: its last step, or a stop by its own rule."""
    try:
        record = RunFolder(folder).read_record()
    except UserError:
        return False
    return record.get("state") == "finished" or (
        record.get("state") == "stopped" and record.get("reason") != "interrupted"
    )


def runs_at_once(study: Study, cores: int) -> int:
    """How many runs fit side by side into `cores`: each has a trainer and its generators, with their threads. At least 1."""
    runtimes = [study.config(*run).runtime for run in study.runs()]
    return max(1, cores // max((len(runtime.generator_devices) + 1) * runtime.threads for runtime in runtimes))


def run_study(study: Study, at_once: int, tell: Tell) -> list[str]:
    """Run what has not ended; returns a line for each run that failed: its name, its exit code and its log."""
    waiting = [run for run in study.runs() if not ended(study.run_folder(*run))]
    tell(f"{len(study.runs())} runs, {len(study.runs()) - len(waiting)} already ended")
    running: list[tuple[Run, subprocess.Popen[bytes], float]] = []
    failed: list[str] = []
    with sigterm_interrupts(), contextlib.ExitStack() as stack:
        stack.callback(_stop, running)
        while waiting or running:
            while waiting and len(running) < at_once:
                run = waiting.pop(0)
                _wait_until_free(study.run_folder(*run), tell)
                if not ended(study.run_folder(*run)):
                    running.append((run, _start(study, *run), time.monotonic()))
            time.sleep(POLL_S)
            for one in [one for one in running if one[1].poll() is not None]:
                running.remove(one)
                line = _outcome(study, *one)
                tell(line)
                failed += [line] if one[1].returncode else []
    return failed


def _outcome(study: Study, run: Run, process: subprocess.Popen[bytes], since: float) -> str:
    variant, seed = run
    if process.returncode:
        return f"{variant.name} seed {seed}: failed with exit {process.returncode}; see {_log(study, variant, seed)}"
    return f"{variant.name} seed {seed}: done in {time.monotonic() - since:.0f} s"


def _log(study: Study, variant: Variant, seed: int) -> Path:
    return study.run_folder(variant, seed).with_suffix(".log")


def _start(study: Study, variant: Variant, seed: int) -> subprocess.Popen[bytes]:
    """Start a run anew, or resume it when it has a checkpoint."""
    folder = study.run_folder(variant, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [*TRAIN]
    if list_checkpoints(folder / "checkpoints"):
        command += ["--resume", str(folder)]
    else:
        path = folder.with_suffix(".toml")
        path.write_text(dump_toml(study.config(variant, seed)), encoding="utf-8")
        command += ["--config", str(path), "--out", str(folder), "--overwrite"]
    with _log(study, variant, seed).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _wait_until_free(folder: Path, tell: Tell) -> None:
    """A run that an earlier call started may still be going on; its folder is locked as long as it does."""
    told = False
    while folder.exists() and _locked(folder):
        if not told:
            tell(f"{folder} is still being trained by an earlier call; waiting for it")
        told = True
        time.sleep(POLL_S)


def _locked(folder: Path) -> bool:
    try:
        with RunFolder(folder).lock():
            return False
    except UserError:
        return True


def _stop(running: list[tuple[Run, subprocess.Popen[bytes], float]]) -> None:
    """Orderly: a terminated run writes a checkpoint and can be resumed."""
    for _, process, _ in running:
        process.terminate()
    for _, process, _ in running:
        process.wait()
