"""Memory of every process of a run over a thousand steps: does anything grow?

    python -m tests.soak.memory --steps 1000

Launcher, trainer, generators, shared memory, logs, evaluations and checkpoints are those of every run; only the engine is
the fake one. Private memory (USS) is looked at twice a second. After a warm-up of a fifth of the steps a straight line is
drawn through it: flat means that the line rises by less than `ALLOWED` over a thousand steps.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from scalerl_mini.config import load_config
from scalerl_mini.runtime import segment
from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.supervisor import Role
from scalerl_mini.training import launcher, processes
from scalerl_mini.training.run_spec import RunSpec
from tests.fakes import FakeEngine, uniform_model
from tests.training.loop import LONGEST, SMALL

MIB = 2**20
ALLOWED = 4 * MIB  # a thousand steps
EVERY = 5  # looks of the launcher, of which there are ten a second
SETTINGS = (
    *SMALL,
    "evaluation.every=50",
    "evaluation.early_every=50",
    "runtime.checkpoint_every=50",
    "runtime.generators=2",
)


@dataclass(frozen=True)
class Growth:
    """A line through private memory over steps: MiB at its middle, MiB a thousand steps, and what is left around it."""

    level: float
    slope: float
    spread: float
    looks: int

    @property
    def flat(self) -> bool:
        return self.slope * MIB < ALLOWED


@dataclass
class MemoryWatcher:
    """A launcher's watcher that looks at the memory of the launcher and of all its children."""

    folder: Path
    reason: str | None = None
    looks: int = 0
    seen: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def start(self) -> None:
        """Nothing is shown."""

    def tell(self, text: str) -> None:
        raise AssertionError(f"nobody should die here: {text}")

    def update(self, control: Control) -> None:
        self.looks += 1
        steps = self.folder / "steps.jsonl"
        if self.looks % EVERY or not steps.exists():
            return
        step = steps.read_bytes().count(b"\n")
        own = psutil.Process()
        self.seen["launcher"].append((step, own.memory_full_info().uss))
        for child in own.children(recursive=True):
            try:
                role = Path(os.readlink(f"/proc/{child.pid}/fd/1")).stem
                if role in control.roles:
                    self.seen[role].append((step, child.memory_full_info().uss))
            except (OSError, psutil.Error):
                continue  # it has just ended
        shared = sum(path.stat().st_size for path in segment.SHM_DIR.glob(f"scalerl-{os.getpid()}-*"))
        self.seen["shared memory"].append((step, shared))

    def growth(self, steps: int) -> dict[str, Growth]:
        """Of each role, after the warm-up."""
        return {role: _line([look for look in looks if look[0] > steps / 5]) for role, looks in self.seen.items()}


def run_trainer(spec: RunSpec) -> None:
    """The trainer with a fake engine for its part of the evaluations."""
    _fake_the_engine()
    processes.run_trainer(spec)


def run_generator(spec: RunSpec, number: int) -> None:
    """A generator with a fake engine."""
    _fake_the_engine()
    processes.run_generator(spec, number)


def measure(folder: Path, steps: int) -> dict[str, Growth]:
    """Train `steps` steps in `folder` and look."""
    model = uniform_model(folder / "model")
    config = load_config(None, (*SETTINGS, f"training.steps={steps}", f"model.name={model}"))
    watcher = MemoryWatcher(folder / "run")
    ours, launcher.Role = launcher.Role, _role  # type: ignore[assignment, misc]
    try:
        outcome = launcher.launch(config, folder / "run", watcher)
    finally:
        launcher.Role = ours  # type: ignore[misc]
    assert outcome.state == "finished", outcome
    return watcher.growth(steps)


def _role(name: str, target: str, args: tuple[object, ...]) -> Role:
    """The role of a run, begun by this module."""
    return Role(name, f"{__spec__.name}:{target.partition(':')[2]}", args)


def _fake_the_engine() -> None:
    processes.build_engine = lambda config, policy, prompt_tokens: FakeEngine(policy, config.slots, LONGEST)  # type: ignore


def _line(looks: list[tuple[int, int]]) -> Growth:
    steps, memory = np.array(looks, float).T
    slope, level = np.polyfit(steps - steps.mean(), memory / MIB, 1)
    spread = float(np.std(memory / MIB - level - slope * (steps - steps.mean())))
    return Growth(float(level), float(slope) * 1000, spread, len(looks))


def main() -> None:
    """Print a table; exit 1 when something grows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        grown = measure(Path(folder), steps)
    print(f"{steps} steps\nrole             MiB    MiB/1000 steps   spread MiB   looks")
    for role, line in grown.items():
        print(f"{role:14} {line.level:6.1f} {line.slope:+13.3f} {line.spread:13.3f} {line.looks:9d}")
    if not all(line.flat for line in grown.values()):
        raise SystemExit("something grows")


if __name__ == "__main__":
    main()
