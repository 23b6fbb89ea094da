"""Kill and freeze every process of a run at every stage, and see that nobody can tell from what the run leaves behind.

    python -m tests.soak.kill_matrix --kills 200 --seed 1

A run is struck a few times at moments that are random within the planned stage; a launcher that was killed or interrupted
is followed by another with --resume. Afterwards the run must have finished, and its
steps, evaluations and final weights must be those of a run that nobody disturbed, down to the last bit: which is so
because the fake engine's tokens depend on seeds alone. Only times, lags and buffer levels may differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from scalerl_mini.runtime import segment
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.rollout_buffer import RolloutBuffer, SlotState
from scalerl_mini.runtime.segment_names import start_time
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.run_folder import read_rows
from tests.fakes import uniform_model
from tests.soak import actors

STEPS, K, KEEP = 24, 2, 2
SETTINGS = (
    "task.name=tests.fakes:FakeTask",
    "task.options={prompts=14, held_out=20}",
    "rollout.slots=8",
    "rollout.group_size=2",
    f"rollout.max_new_tokens={actors.LONGEST}",
    "rollout.interruption.enabled=false",
    "objective.no_positive_resampling=false",
    "pipeline.prompts_per_step=3",
    f"pipeline.k={K}",
    f"training.steps={STEPS}",
    "training.lr=0.01",
    "evaluation.prompts=20",
    "evaluation.samples=2",
    "evaluation.early_every=6",
    "runtime.checkpoint_every=5",
    f"runtime.keep_checkpoints={KEEP}",
    "runtime.heartbeat_timeout_s=2.5",
    "runtime.wait_timeout_s=8",
    "runtime.restarts=6",
)
FULL, BACKOFF = "BUFFER_FULL", "BACKOFF"
STAGES = {
    "generator": ("STARTING", "GENERATING", FULL, "LOADING", "EVALUATING"),
    "trainer": ("STARTING", "WAITING", "TRAINING", "PUBLISHING", "CHECKPOINTING", "EVALUATING"),
    "launcher": ("STARTING", "GENERATING", FULL, "PUBLISHING", "CHECKPOINTING", "EVALUATING", BACKOFF),
}
SIGNALS = {"generator": ("SIGKILL", "SIGSTOP"), "trainer": ("SIGKILL", "SIGSTOP"),
           "launcher": ("SIGKILL", "SIGSTOP", "SIGINT", "SIGTERM", "2x SIGINT")}  # fmt: skip
EXITS = {"SIGKILL": -signal.SIGKILL, "SIGINT": 130, "2x SIGINT": 130, "SIGTERM": 143}
OWN = ("wall_seconds", "device_hours", "buffered_groups", "lag_min", "lag_mean", "lag_max")
WITHIN_S = 0.02  # a signal is sent up to this long after its stage was seen
LONGEST_RUN_S = 300.0
ORDERLY_S = 20.0  # an interrupted launcher ends within this time, on a machine that has other things to do


@dataclass(frozen=True)
class Kill:
    """One planned signal; `role` is generator (any), trainer or launcher, whose stage is that of any other process, or the
    pause between a trainer's death and the next life."""

    role: str
    stage: str
    signal: str


def matrix() -> list[Kill]:
    """Every cell once."""
    return [Kill(role, stage, name) for role, stages in STAGES.items() for stage in stages for name in SIGNALS[role]]


TO_BACKOFF = Kill("trainer", "TRAINING", "SIGKILL")


def prepared(kill: Kill) -> list[Kill]:
    """A kill and what must go before it: there is a pause to strike only after the trainer's death."""
    return [TO_BACKOFF, kill] if kill.stage == BACKOFF else [kill]


@dataclass
class Run:
    """One run folder, and the launchers that work on it one after the other."""

    folder: Path
    model: Path
    generators: int
    random: random.Random
    sent: list[Kill] = field(default_factory=list)
    launchers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pids = self.folder.with_suffix(".pids")
        self.console = self.folder.with_suffix(".console")
        settings = (*SETTINGS, f"model.name={self.model}", f"runtime.generators={self.generators}")
        self.settings = [word for setting in settings for word in ("--set", setting)]
        self.views: tuple[Control, RolloutBuffer | None] | None = None
        self.struck: set[int] = set()

    def go(self, plan: list[Kill]) -> list[Kill]:
        """Run to the end, through as many kills of the plan as there is occasion for; returns the others."""
        end = time.monotonic() + LONGEST_RUN_S
        self._launch("train", "--out", str(self.folder), *self.settings)
        plan, armed = list(plan), 0.0
        while True:
            assert time.monotonic() < end, f"a run that does not end: {self.folder}"
            code = self._ended()
            if code == 0:
                return plan
            if code is not None:
                self._continue(code)
            assert time.monotonic() < self.orderly_until, f"an interrupt that does not end the launcher: {self.folder}"
            if plan and (time.monotonic() > armed or plan[0].stage == BACKOFF) and self._strike(plan[0]):
                plan.pop(0)
                armed = time.monotonic() + self.random.choice((0.0, 0.3, 1.0)) * self.random.random()
            time.sleep(0.0005)

    def _launch(self, *arguments: str) -> None:
        self.launchers.append(actors.launch(list(arguments), self.console, self.pids))
        self._forget()
        self.lived, self.orderly_until = False, float("inf")

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self.launchers[-1], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def _continue(self, code: int) -> None:
        """After the launcher's death: its children must go with it, then the run is resumed, or begun if it had not got
        as far as a checkpoint."""
        last = next((kill for kill in reversed(self.sent) if kill.signal in EXITS and kill.role == "launcher"), None)
        assert code == (EXITS[last.signal] if last else 0), f"exit {code}: {self.console.read_text()[-3000:]}"
        self.wait_until_gone()
        if list_checkpoints(self.folder / "checkpoints"):
            self._launch("train", "--resume", str(self.folder))
        else:
            self._launch("train", "--out", str(self.folder), "--overwrite", *self.settings)

    def wait_until_gone(self, seconds: float = 10.0) -> None:
        """All processes of all launchers so far are gone."""
        end = time.monotonic() + seconds
        while alive := [pid for _, pid in self._started() if start_time(pid) is not None]:
            assert time.monotonic() < end, f"left behind: {alive}"
            time.sleep(0.005)

    def _strike(self, kill: Kill) -> bool:
        """Send the signal if its moment is there."""
        role = self._seen(kill)
        if role is None:
            return False
        time.sleep(self.random.random() * WITHIN_S)
        pid = self.launchers[-1] if kill.role == "launcher" else dict(self._started()).get(role)
        if pid is None or pid in self.struck or start_time(pid) is None:
            return False
        os.kill(pid, signal.Signals[kill.signal.removeprefix("2x ")])
        self.struck |= {pid} if kill.role != "launcher" else set()
        self.sent.append(kill)
        if (kill.role, kill.signal) == ("launcher", "SIGSTOP"):  # nobody watches the watcher: it wakes up by itself
            time.sleep(self.random.random() * 4.0)
            os.kill(pid, signal.SIGCONT)
        if kill.signal == "2x SIGINT":
            time.sleep(self.random.random() * 0.1)
            os.kill(pid, signal.SIGINT)
        if kill.role == "launcher" and kill.signal in EXITS:
            self.orderly_until = time.monotonic() + ORDERLY_S
        return True

    def _seen(self, kill: Kill) -> str | None:
        """A role that is in the kill's stage just now."""
        views = self._views()
        self.lived |= views is not None
        if kill.stage == BACKOFF:
            return kill.role if self.lived and views is None else None
        if views is None:
            return None
        control, buffer = views
        roles = [role for role in control.roles if kill.role == "launcher" or role.startswith(kill.role)]
        self.random.shuffle(roles)
        if kill.stage == FULL:
            full = buffer is not None and bool((buffer._slots["state"] == SlotState.READY).all())
            return next((role for role in roles if full and control.stage(role) == Stage.WAITING), None)
        return next((role for role in roles if control.stage(role) == Stage[kill.stage]), None)

    def _views(self) -> tuple[Control, RolloutBuffer | None] | None:
        """The control block, and once there is one the rollout buffer, of the life that goes on now."""
        if self.views and not self.views[0].path.exists():
            self._forget()
        with contextlib.suppress(FileNotFoundError, ValueError):  # a segment is being made, or has just gone
            if self.views is None:
                paths = list(segment.SHM_DIR.glob(f"scalerl-{self.launchers[-1]}-*.control"))
                self.views = (Control.attach(paths[0]), None) if paths else None
            elif self.views[1] is None:
                path = self.views[0].path
                buffer = RolloutBuffer.attach(path.with_name(path.name.removesuffix("control") + "rollouts"))
                self.views = self.views[0], buffer
        return self.views

    def _forget(self) -> None:
        """Let go of the shared memory of a life that is over."""
        for view in self.views or ():
            if view is not None:
                view.close()
        self.views = None

    def _started(self) -> list[tuple[str, int]]:
        lines = self.pids.read_text().splitlines() if self.pids.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    # What a run leaves behind.

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A log without what may differ."""
        rows = read_rows(self.folder / name)
        return [{k: v for k, v in row.items() if k not in OWN and not k.endswith("_s")} for row in rows]

    def check(self, reference: Run) -> None:
        """Raise AssertionError unless the run ended as if nobody had disturbed it, and left nothing behind."""
        record = json.loads((self.folder / "run.json").read_text())
        assert (record["state"], record["reason"]) == ("finished", None), record
        steps = read_rows(self.folder / "steps.jsonl")
        assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
        rewound = read_rows(self.folder / "steps.rewound.jsonl")
        assert all(0 <= row["lag_min"] <= row["lag_max"] <= K for row in (*steps, *rewound))
        assert [row["step"] for row in read_rows(self.folder / "evals.jsonl")] == [0, 6, 12, 18, 24]
        for name in ("steps.jsonl", "evals.jsonl"):
            assert self.rows(name) == reference.rows(name), name
        newest = [list_checkpoints(run.folder / "checkpoints")[0] for run in (self, reference)]
        weights = [(path / "model.safetensors").read_bytes() for path in newest]
        assert newest[0].name == newest[1].name
        assert weights[0] == weights[1]
        assert len(list_checkpoints(self.folder / "checkpoints")) <= KEEP
        self.wait_until_gone()
        left = [path for pid in self.launchers for path in segment.SHM_DIR.glob(f"scalerl-{pid}-*")]
        left += [path for path in self.folder.rglob("*") if "tmp" in path.name or path.name.startswith("scalerl-")]
        assert left == []

    @property
    def deaths(self) -> int:
        """Deaths that the launcher noticed and mended."""
        return len(json.loads((self.folder / "run.json").read_text()).get("deaths", []))


@dataclass
class Soak:
    """Runs with kills until every planned kill was sent."""

    place: Path
    seed: int
    runs: list[Run] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.model = uniform_model(self.place / "model")
        self.reference = self._run("reference", 1, [])[0]

    def go(self, kills: list[Kill]) -> None:
        """Each run takes up to four kills; one at the start can only be the first of a run."""
        starts = [kill for kill in kills if kill.stage == "STARTING"]
        others = [kill for kill in kills if kill.stage != "STARTING"]
        self.random.shuffle(others)
        while starts or others:
            count = self.random.randint(1, 4)
            plan = [starts.pop()] if starts and (self.random.random() < 0.5 or not others) else []
            plan, others = plan + [step for kill in others[:count] for step in prepared(kill)], others[count:]
            run, left = self._run(f"run-{len(self.runs)}", self.random.randint(1, 2), plan)
            pairs = zip_longest(left, left[1:])  # what only prepares another kill comes with it again
            others += [kill for kill, then in pairs if then is None or [kill, then] != prepared(then)]
            run.check(self.reference)
            self.runs.append(run)
            done = sum(len(run.sent) for run in self.runs)
            text = ", ".join(f"{kill.role} {kill.stage} {kill.signal}" for kill in run.sent)
            print(f"run {len(self.runs):3d}: as undisturbed after {self.seconds[-1]:5.1f} s, {len(run.launchers)} launchers,"
                  f" {run.deaths} deaths mended; {done} kills so far: {text}", flush=True)  # fmt: skip

    def _run(self, name: str, generators: int, plan: list[Kill]) -> tuple[Run, list[Kill]]:
        start = time.monotonic()
        run = Run(self.place / name, self.model, generators, self.random)
        left = run.go(plan)
        self.seconds.append(time.monotonic() - start)
        return run, left

    def table(self) -> str:
        """Kills by role, stage and signal, every one of which ended in a run as if undisturbed."""
        counts = Counter(kill for run in self.runs for kill in run.sent)
        lines = [f"{'role':<12}{'stage':<16}" + "".join(f"{name:>11}" for name in SIGNALS["launcher"])]
        for role, stages in STAGES.items():
            for stage in stages:
                numbers = [counts[Kill(role, stage, name)] for name in SIGNALS[role]]
                lines.append(f"{role:<12}{stage:<16}" + "".join(f"{number:>11}" for number in numbers))
        rewound = sum(len(read_rows(run.folder / "steps.rewound.jsonl")) for run in self.runs)
        lags = [row["lag_max"] for run in self.runs for row in read_rows(run.folder / "steps.jsonl")]
        lines.append(f"{sum(counts.values())} kills in {len(self.runs)} runs of {STEPS} steps, seed {self.seed}: "
                     f"{sum(run.deaths for run in self.runs)} deaths mended, {rewound} steps done again, "
                     f"largest lag {max(lags)} of {K}, mean {np.mean(lags):.2f}, {sum(self.seconds):.0f} s")  # fmt: skip
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=len(matrix()), help="rounded up to whole matrices when above one")
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed when it is not given")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    actors.prepare()
    with tempfile.TemporaryDirectory(prefix="scalerl-soak-") as place:
        soak = Soak(Path(place), seed)
        cells = matrix()
        soak.random.shuffle(cells)
        soak.go((cells * -(-options.kills // len(cells))) if options.kills > len(cells) else cells[: options.kills])
        print(soak.table())


if __name__ == "__main__":
    main()
