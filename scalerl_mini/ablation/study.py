"""A study: every variant with every seed is one run folder; what is finished is not run again.

    OUT/
      study.json                 base recipe, settings, variants, seeds
      VARIANT/seed-N/            run folders
      ranking.json, ranking.md, curves.png, efficiency.png

Each run is a process of its own, so that a failure or a kill costs one run; started again, the study resumes what was
interrupted and goes on. By default one run at a time: a run already keeps two cores busy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from scalerl_mini.ablation.variants import Variant
from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.run_folder import RunFolder


@dataclass(frozen=True)
class Study:
    """folder: where it lives. recipe, settings: the base of every variant. seeds: one run each."""

    folder: Path
    recipe: str | None
    settings: tuple[str, ...]
    variants: list[Variant]
    seeds: tuple[int, ...]

    def config(self, variant: Variant, seed: int) -> Config:
        """The configuration of one run. Raises UserError when the variant contradicts the base."""
        settings = (*self.settings, *variant.settings, f"seed={seed}")
        return load_config(None, settings, variant.recipe or self.recipe)

    def run_folder(self, variant: Variant, seed: int) -> Path:
        """Where a run lives."""
        return self.folder / variant.name / f"seed-{seed}"

    def runs(self) -> list[tuple[Variant, int]]:
        """All runs, seed by seed, so that an interrupted study has every variant before any has a second seed."""
        return [(variant, seed) for seed in self.seeds for variant in self.variants]

    def write(self) -> None:
        """Write study.json, or check that the one there is of the same study (more seeds or variants may join)."""
        for variant, seed in self.runs():
            self.config(variant, seed)
        record: dict[str, object] = {"recipe": self.recipe, "settings": list(self.settings)}
        path = self.folder / "study.json"
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            if {key: before.get(key) for key in record} != record:
                raise UserError(f"{path} is of a study with other settings; choose another --out")
        self.folder.mkdir(parents=True, exist_ok=True)
        record |= {"variants": [asdict(variant) for variant in self.variants], "seeds": list(self.seeds)}
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def run_study(study: Study, parallel: int, tell: Callable[[str], None]) -> list[str]:
    """Run what is not finished, `parallel` at a time; returns the names of runs that failed."""
    waiting = [run for run in study.runs() if _state(study.run_folder(*run)) != "finished"]
    tell(f"{len(study.runs())} runs, {len(study.runs()) - len(waiting)} already finished")
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed = []
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                variant, seed = waiting.pop(0)
                running[f"{variant.name} seed {seed}"] = _start(study, variant, seed)
            time.sleep(0.2)
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    tell(f"{name}: {'done' if process.returncode == 0 else f'failed with exit {process.returncode}'}")
                    failed += [name] if process.returncode else []
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    return failed


def _start(study: Study, variant: Variant, seed: int) -> subprocess.Popen[bytes]:
    folder = study.run_folder(variant, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "scalerl_mini", "train"]
    if list_checkpoints(folder / "checkpoints"):
        command += ["--resume", str(folder)]
    else:
        path = folder.parent / f"seed-{seed}.toml"
        path.write_text(dump_toml(study.config(variant, seed)), encoding="utf-8")
        command += ["--config", str(path), "--out", str(folder)]
        command += ["--overwrite"] if folder.exists() else []
    with (folder.parent / f"seed-{seed}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _state(folder: Path) -> str | None:
    try:
        return RunFolder(folder).read_record().get("state")
    except (OSError, ValueError):
        return None
