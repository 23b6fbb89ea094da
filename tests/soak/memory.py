"""Does any process of a run grow? 3000 steps with an engine that samples nothing; the last 1000 are looked at.

    python -m tests.soak.memory

Supervisor, launcher, trainer, generator, shared memory, logs and checkpoints are those of every run; the model is tiny, so
that a leak of some hundred bytes a step is not hidden by buffers. Every 25 steps the anonymous memory of each process is
read: unlike the unique set size it does not grow when a forked process first writes a page of its ancestor. A straight
line through what follows the warm-up has a slope and a standard error. The warm-up is so long because the interpreter's
free lists and caches and the allocator's heap take some 1300 steps to fill (docs/reliability.md).
`--leak` bytes a step are kept in the trainer on purpose: the soak must then fail.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy.stats import linregress

from scalerl_mini.rollout.engines import Finished
from scalerl_mini.training import processes, watch
from scalerl_mini.training.learner import Learner
from scalerl_mini.training.row_log import read_rows
from tests.fakes import FAKE_RUN, LONGEST, FakeEngine, uniform_model
from tests.forked import become_ancestor, fork_launcher
from tests.patience import patience

SETTINGS = (
    *FAKE_RUN,
    "task.options={prompts=14, held_out=20}",
    "evaluation.prompts=20",
    "evaluation.samples=1",
    "evaluation.early_every=25",
    "evaluation.every=25",
    "runtime.checkpoint_every=25",
    "runtime.keep_checkpoints=2",
)
Samples = dict[str, list[tuple[int, int]]]  # process -> (step, bytes)


def prepare(leak: int) -> None:
    """Turn this process into the ancestor of the run."""
    become_ancestor()
    watch.FIRST_FIT = 10**9
    processes.build_engine = _engine  # type: ignore[assignment]
    processes.check_engine = lambda *_: None  # type: ignore[assignment] # it samples what no policy would
    if leak:
        Learner.update = _leaking(Learner.update, leak)  # type: ignore[method-assign]


class ForgetfulEngine(FakeEngine):
    """Keeps no record of what it sampled, which would grow."""

    def step(self) -> list[Finished]:
        self.sampled.clear()
        return super().step()

    def beside(self, completion_tokens: int) -> ForgetfulEngine:
        return ForgetfulEngine(self.policy, self.slots, self.longest)


def _engine(config: Any, policy: Any, *_: Any) -> FakeEngine:
    return ForgetfulEngine(policy, config.slots, LONGEST)


def _leaking(update: Any, leak: int) -> Any:
    kept: list[bytes] = []

    def leaking(*args: Any, **kwargs: Any) -> Any:
        kept.append(os.urandom(leak))
        return update(*args, **kwargs)

    return leaking


def watched_run(folder: Path, steps: int, every: int) -> Samples:
    """A run from its start to its end, and what its processes held every `every` steps. AssertionError unless it
    ends well."""
    settings = (*SETTINGS, f"training.steps={steps}", f"model.name={uniform_model(folder / 'model')}")
    words = [word for setting in settings for word in ("--set", setting)]
    run, console = folder / "run", folder / "console"
    launcher = fork_launcher(["train", "--out", str(run), *words], console)
    samples: Samples = defaultdict(list)
    deadline, due, end = time.monotonic() + patience(60 + steps), every, (0, 0)
    while end == (0, 0):
        assert time.monotonic() < deadline, f"a run that does not end: {console.read_text()[-2000:]}"
        if due <= (done := _steps(run)) < steps:  # at the last step they are ending
            for name, size in _sizes(launcher).items():
                samples[name].append((done, size))
            due = done - done % every + every
        time.sleep(0.02)
        end = os.waitpid(launcher, os.WNOHANG)
    assert os.waitstatus_to_exitcode(end[1]) == 0, console.read_text()[-2000:]
    assert len(read_rows(run / "steps.jsonl")) == steps
    return samples


def _steps(run: Path) -> int:
    path = run / "steps.jsonl"  # lines are counted, not read: this is asked fifty times a second
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _sizes(launcher: int) -> dict[str, int]:
    """Anonymous memory in bytes of each process by name; one that ends just now is left out."""
    own = psutil.Process(launcher)
    sizes = {}
    for process in (own, *own.children()):
        try:
            logs = [Path(file.path).stem for file in process.open_files() if file.path.endswith(".log")]
            name = "launcher" if process == own else (logs or ["other"])[0]
            sizes[name] = _anonymous(process.pid)
        except (psutil.Error, OSError):
            continue
    return sizes


def _anonymous(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(1024 * int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))


def report(samples: Samples, warm_up: int, allowed: float) -> list[str]:
    """Print a line a process; the names of those that grow: by more than `allowed` bytes a step, and than three
    standard errors."""
    growing = []
    for name, rows in sorted(samples.items()):
        steps, sizes = np.array([row for row in rows if row[0] > warm_up], float).T
        line = linregress(steps, sizes)
        low, high = sizes.min() / 2**20, sizes.max() / 2**20
        print(f"{name:<12} {line.slope:9.1f} +- {line.stderr:7.1f} bytes a step, {low:.2f} to {high:.2f} MiB,"
              f" {len(steps)} looks at steps {steps[0]:.0f} to {steps[-1]:.0f}")  # fmt: skip
        if line.slope > max(allowed, 3 * line.stderr):
            growing.append(name)
    return growing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--warm-up", type=int, default=2000, help="steps before the first look that counts")
    parser.add_argument("--every", type=int, default=25, help="steps between two looks")
    parser.add_argument(
        "--allowed", type=float, default=32.0, help="bytes a step that a process may grow: eight pages in 1000 steps"
    )
    parser.add_argument("--leak", type=int, default=0, help="bytes a step that the trainer keeps")
    options = parser.parse_args()
    prepare(options.leak)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="scalerl-memory-") as place:
        samples = watched_run(Path(place), options.steps, options.every)
    growing = report(samples, options.warm_up, options.allowed)
    print(f"{options.steps} steps, {time.monotonic() - start:.0f} s")
    sys.exit(f"growing: {', '.join(growing)}" if growing else 0)


if __name__ == "__main__":
    main()
