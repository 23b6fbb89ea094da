"""What a person sees: a line a step, a line an evaluation, and never the end of a run because of a picture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scalerl_mini.config import Config
from scalerl_mini.training.row_log import append_row
from scalerl_mini.training.watch import FIRST_FIT, RunWatcher

STEP: dict[str, Any] = {
    "step": 7, "reward_mean": 0.25, "effective_groups": 3, "groups": 4, "lag_min": 0, "lag_mean": 1.5, "lag_max": 3,
    "ratio_max": None, "mismatch_kl": 2e-4, "logprob_gap_mean": 1e-6, "logprob_gap_max": 1e-5,
    "entropy": 0.5, "grad_norm": 0.1, "generator_wait_s": 0.1, "trainer_wait_s": 0.2,
    "generated_tokens": 1234, "trained_tokens": 1000,
    "truncation_rate": 0.0, "dropped_tokens": 0, "skipped": None, "grading_errors": 0, "grading_timeouts": 0,
}  # fmt: skip
EVALUATION: dict[str, Any] = {
    "policy_version": 7, "pass_rate": 0.5, "pass_rate_stderr": 0.01, "generated_tokens": 1234, "wall_seconds": 60.0,
    "interruption_rate": 0.1, "mean_length": 30.0, "truncation_rate": 0.0,
    "grading_errors": 0, "grading_timeouts": 0,
}  # fmt: skip


@pytest.fixture(params=[False, True], ids=["plain", "terminal"])
def watcher(tmp_path: Path, request: pytest.FixtureRequest) -> RunWatcher:
    console = Console(file=io.StringIO(), force_terminal=request.param, width=200)
    return RunWatcher(tmp_path, Config(), console)


def text(watcher: RunWatcher) -> str:
    assert isinstance(watcher.console.file, io.StringIO)
    return watcher.console.file.getvalue()


def test_steps_and_evaluations_are_told_once(watcher: RunWatcher, tmp_path: Path) -> None:
    watcher.start()
    append_row(tmp_path / "steps.jsonl", STEP)
    append_row(tmp_path / "evals.jsonl", EVALUATION)
    for _ in range(3):
        watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    if not watcher.live:
        assert (
            text(watcher).count("step    7  reward 0.250  groups   3/4  lag 0/1.5/3  ratio max -  mismatch 2e-04") == 1
        )
    assert text(watcher).count("evaluation of version 7: pass rate 0.500 +- 0.010") == 1


def test_the_downstream_pass_rate_is_told(watcher: RunWatcher, tmp_path: Path) -> None:
    watcher.start()
    both = EVALUATION | {"downstream_pass_rate": 0.25, "downstream_pass_rate_stderr": 0.02}
    append_row(tmp_path / "evals.jsonl", both | {"downstream_grading_errors": 2, "downstream_grading_timeouts": 1})
    watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert "downstream 0.250 +- 0.020" in text(watcher)
    assert "grading failed: 2 errors, 1 time-outs" in text(watcher)


def test_what_went_wrong_in_a_step_is_told(watcher: RunWatcher, tmp_path: Path) -> None:
    watcher.start()
    append_row(tmp_path / "steps.jsonl", STEP | {"truncation_rate": 0.1})
    append_row(tmp_path / "steps.jsonl", STEP | {"truncation_rate": 0.12})
    append_row(tmp_path / "steps.jsonl", STEP | {"dropped_tokens": 5, "skipped": "the loss is nan", "grad_norm": None})
    append_row(tmp_path / "evals.jsonl", EVALUATION | {"grading_errors": 3, "grading_timeouts": 1})
    watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert "grad -" in text(watcher) or watcher.live
    assert "12% cut at the limit" in text(watcher) or watcher.live
    assert "10% cut at the limit" not in text(watcher)
    assert "5 tokens without a finite log-probability  SKIPPED: the loss is nan" in text(watcher)
    assert "length 30.0)  grading failed: 3 errors, 1 time-outs (see logs/)" in text(watcher)


def test_a_resumed_run_does_not_tell_the_past(watcher: RunWatcher, tmp_path: Path) -> None:
    append_row(tmp_path / "evals.jsonl", EVALUATION)
    watcher.start()
    watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert "evaluation" not in text(watcher)


def test_a_return_to_a_checkpoint_is_told_and_the_steps_are_told_again(watcher: RunWatcher, tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    watcher.start()
    live = watcher.live
    for step in (5, 6, 7):
        append_row(steps, STEP | {"step": step})
    watcher.update(None)  # type: ignore[arg-type]
    watcher.reason = "gained too little"
    steps.unlink()
    append_row(steps, STEP | {"step": 5})
    watcher.start()
    assert watcher.reason is None
    assert watcher.live is live
    watcher.tell("trainer was killed by SIGKILL; going on from step-00005")
    append_row(steps, STEP | {"step": 6, "generated_tokens": 1300})
    watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert text(watcher).count("trainer was killed by SIGKILL; going on from step-00005") == 1
    if not watcher.live:
        assert [text(watcher).count(f"step    {step}  reward") for step in (5, 6, 7)] == [1, 2, 1]


def test_the_self_check_is_told_once_and_only_of_a_fresh_run(watcher: RunWatcher, tmp_path: Path) -> None:
    watcher.start()
    for row in (STEP | {"logprob_gap_mean": None, "logprob_gap_max": None}, STEP, STEP):
        append_row(tmp_path / "steps.jsonl", row)
        watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert text(watcher).count("differ by 1.0e-06, at most 1.0e-05") == 1
    again = RunWatcher(tmp_path, Config(), Console(file=io.StringIO(), width=200))
    again.start()
    append_row(tmp_path / "steps.jsonl", STEP)
    again.update(None)  # type: ignore[arg-type]
    again.close()
    assert "self-check" not in text(again)


def test_a_curve_that_cannot_be_drawn_does_not_end_the_run(
    watcher: RunWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("scalerl_mini.scaling.fit", full)
    watcher.start()
    for _ in range(FIRST_FIT):
        append_row(tmp_path / "evals.jsonl", EVALUATION)
    watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert "no fit: OSError: No space left on device" in text(watcher)
    assert not (tmp_path / "curve.png").exists()


def test_completions_cut_at_the_limit_are_warned_of(watcher: RunWatcher, tmp_path: Path) -> None:
    watcher.start()
    append_row(tmp_path / "evals.jsonl", EVALUATION | {"truncation_rate": 0.15})
    watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    assert "warning: 15% of completions are cut at the limit" in text(watcher)


def test_a_watcher_that_never_started_can_be_closed(watcher: RunWatcher) -> None:
    watcher.close()
