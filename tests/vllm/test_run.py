"""Two real asynchronous runs of the tiny model, equal but for the engine: vLLM learns as the torch engine does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import Launched

pytestmark = pytest.mark.slow

STEPS = 48
SETTINGS = (
    f"training.steps={STEPS}",
    "pipeline.prompts_per_step=16",
    "rollout.group_size=8",
    "evaluation.prompts=250",
    "evaluation.early_every=24",
    "evaluation.trainer_helps=false",
    "training.lr=2e-4",
)


class Run:
    """What a finished run left behind."""

    def __init__(self, folder: Path, engine: str) -> None:
        arguments = ("--out", str(folder), "--seed", "1", "--engine", engine)
        launched = Launched(*arguments, settings=SETTINGS, console=folder.with_suffix(".console"))
        code, self.text = launched.end(240)
        assert code == 0, self.text
        self.steps: list[dict[str, Any]] = read_rows(folder / "steps.jsonl")
        self.evals: list[dict[str, Any]] = read_rows(folder / "evals.jsonl")
        self.completions = [row for path in sorted((folder / "rollouts").glob("*.jsonl")) for row in read_rows(path)]
        print(engine, json.dumps([(row["step"], round(row["pass_rate"], 4)) for row in self.evals]))  # pytest -s

    @property
    def rise(self) -> float:
        """From the first evaluation to the last, in standard errors of the difference."""
        first, last = self.evals[0], self.evals[-1]
        error = (first["pass_rate_stderr"] ** 2 + last["pass_rate_stderr"] ** 2) ** 0.5
        return (last["pass_rate"] - first["pass_rate"]) / error


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("vllm") / "run", "vllm")


@pytest.fixture(scope="module")
def torch_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("torch") / "run", "torch")


def test_the_pass_rate_rises_as_with_the_torch_engine(vllm: Run, torch_run: Run) -> None:
    assert vllm.rise > 3
    assert torch_run.rise > 3
    ours, theirs = vllm.evals[-1], torch_run.evals[-1]
    error = (ours["pass_rate_stderr"] ** 2 + theirs["pass_rate_stderr"] ** 2) ** 0.5
    assert (
        abs(ours["pass_rate"] - theirs["pass_rate"]) < 0.1 + 3 * error
    )  # asynchronous runs differ from each other too


def test_weights_arrive_inside_completions(vllm: Run) -> None:
    assert any(row["first_version"] < row["last_version"] for row in vllm.completions)


def test_the_trainer_rescores_what_vllm_recorded(vllm: Run) -> None:
    assert vllm.steps[0]["logprob_gap_mean"] < 1e-4
