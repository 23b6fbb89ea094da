"""The default job, cut to 24 steps: two processes that really run beside each other, and a policy that really learns.

One run for all tests of this file.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.config import load_config
from scalerl_mini.runtime import segment
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import Launched

pytestmark = pytest.mark.slow

STEPS = 24
SETTINGS = (f"training.steps={STEPS}", "evaluation.prompts=200", "evaluation.early_every=8", "training.lr=2e-4")


class Run:
    """What the run left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        before = {path.name for path in segment.SHM_DIR.iterdir()}
        launched = Launched(
            "--out", str(folder), "--seed", "1", settings=SETTINGS, console=folder.with_suffix(".console")
        )
        launched.wait_for(lambda: (folder / "evals.jsonl").exists(), "first evaluation", 120)
        self.children = len(launched.family)
        self.code, self.text = launched.end(300)
        self.left_behind = launched.left_behind()
        self.new_segments = {name for name in {path.name for path in segment.SHM_DIR.iterdir()} - before
                             if name.startswith(f"scalerl-{launched.process.pid}-")}  # fmt: skip
        self.steps: list[dict[str, Any]] = read_rows(folder / "steps.jsonl")
        self.evals: list[dict[str, Any]] = read_rows(folder / "evals.jsonl")
        self.record = json.loads((folder / "run.json").read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("asynchronous") / "run")


def test_it_ends_well(run: Run) -> None:
    assert run.code == 0, run.text
    assert run.record["state"] == "finished"
    assert run.record["reason"] is None
    assert run.text.splitlines()[-1].startswith("finished; see ")


def test_the_pass_rate_rises(run: Run) -> None:
    first, last = run.evals[0], run.evals[-1]
    error = (first["pass_rate_stderr"] ** 2 + last["pass_rate_stderr"] ** 2) ** 0.5
    assert last["pass_rate"] - first["pass_rate"] > 3 * error


def test_nothing_is_left_behind(run: Run) -> None:
    assert run.children >= 2  # trainer and generator (and what multiprocessing needs)
    assert run.left_behind == []
    assert run.new_segments == set()


def test_every_step_and_evaluation_has_its_row(run: Run) -> None:
    assert [row["step"] for row in run.steps] == list(range(1, STEPS + 1))
    assert [row["step"] for row in run.evals] == [0, 8, 16, 24]
    assert [row["policy_version"] for row in run.evals] == [0, 8, 16, 24]
    assert all(row["prompts"] == 200 for row in run.evals)


def test_lag_stays_within_k_and_is_used(run: Run) -> None:
    assert max(row["lag_max"] for row in run.steps) <= 4
    assert max(row["lag_max"] for row in run.steps) > 0


def test_the_first_batch_is_scored_as_it_was_sampled(run: Run) -> None:
    assert run.steps[0]["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert run.steps[0]["mismatch_kl"] == pytest.approx(0.0, abs=1e-6)


def test_compute_grows_and_leaves_evaluations_out(run: Run) -> None:
    for earlier, later in itertools.pairwise(run.evals):
        assert all(
            later[name] > earlier[name]
            for name in ("device_hours", "flops", "generated_tokens", "trained_tokens", "wall_seconds")
        )
    last = run.evals[-1]
    assert last["device_hours"] == pytest.approx(2 * last["wall_seconds"] / 3600)
    assert last["generated_tokens"] >= run.steps[-1]["trained_tokens"] == last["trained_tokens"]
    busy = sum(row["train_s"] + row["trainer_wait_s"] for row in run.steps)
    assert busy <= last["wall_seconds"] * 1.01 + 1


def test_logs_are_clean(run: Run) -> None:
    for name in ("trainer", "generator-0"):
        text = (run.folder / "logs" / f"{name}.log").read_text()
        for word in ("Traceback", "Error", "Warning", "warning"):
            assert word not in text, f"{name}.log: {text}"


def test_the_folder_repeats_the_run(run: Run) -> None:
    assert load_config(run.folder / "config.toml") == load_config(None, (*SETTINGS, "seed=1"))


def test_the_curve_is_fitted_and_drawn(run: Run) -> None:
    json.loads((run.folder / "fit.json").read_text())
    assert (run.folder / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_completions_can_be_read(run: Run) -> None:
    rows = read_rows(run.folder / "rollouts" / f"step-{STEPS:05d}.jsonl")
    assert len(rows) == 8
    assert all(row["prompt"].startswith("<bos>") and row["reward"] in (0.0, 1.0) for row in rows)
    assert all(0 <= row["first_version"] <= row["last_version"] < STEPS for row in rows)
