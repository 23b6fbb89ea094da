"""What a person sees while a run goes on: its JSON Lines, followed by the launcher and told in a line or a live panel.

After each evaluation from the fourth on the sigmoid law is fitted to the run so far, and curve.png and fit.json are
written. All of it happens in the launcher, so neither generator nor trainer waits for a picture.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from scalerl_mini.config import Config
from scalerl_mini.runtime.control import Control
from scalerl_mini.training.diagnostics import TRUNCATION_WARNING
from scalerl_mini.training.self_check import self_check_lines
from scalerl_mini.training.trackers import Tracking

FIRST_FIT = 4  # evaluations


class RowFollower:
    """Rows appended to a JSON Lines file since the last look; a line without its end is left for the next look."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def new_rows(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            whole = file.read().rpartition(b"\n")[0]
        self.offset += len(whole) + 1 if whole else 0
        return [row for line in whole.splitlines() if (row := _row(line))]


def _row(line: bytes) -> dict[str, Any] | None:
    """None when somebody has spoilt the log: whoever writes it will say so, here it must not end the run."""
    with contextlib.suppress(ValueError):
        row = json.loads(line)
        return row if isinstance(row, dict) else None
    return None


class RunWatcher:
    """Follows steps.jsonl and evals.jsonl of one run. On a terminal a live line, elsewhere one plain line a step."""

    def __init__(self, folder: Path, config: Config, console: Console) -> None:
        self.folder, self.config, self.console = folder, config, console
        self.tracking = Tracking(folder, config)
        self.live: Live | None = None
        self.reason: str | None = None

    def start(self) -> None:
        """Begin, also after a return to a checkpoint, behind whatever is logged already."""
        self.reason = None
        self.steps = RowFollower(self.folder / "steps.jsonl")
        self.evals = RowFollower(self.folder / "evals.jsonl")
        logged = self.steps.new_rows()
        self.checked = bool(logged)
        self.tracking.begin(logged[-1].get("step", 0) if logged else 0)
        self.evaluations = len(self.evals.new_rows())
        if self.console.is_terminal and not self.live:
            self.live = Live(self.config.training.steps, self.console)
        if self.live:
            self.live.before = None

    def tell(self, text: str) -> None:
        """Something happened to the processes of the run."""
        self.console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def update(self, control: Control) -> None:
        """Tell what is new."""
        steps = self.steps.new_rows()
        self.tracking.rows("train", steps)
        for row in steps:
            if not self.checked and row["logprob_gap_max"] is not None:
                self.checked = True
                self._print(*self_check_lines(row, self.config.model))
            if self.live:
                self.live.step(row)
            else:
                self.console.print(step_line(row), highlight=False, soft_wrap=True)
        rows = self.evals.new_rows()
        self.evaluations += len(rows)
        self.tracking.rows("evaluation", rows)
        while not self.tracking.failures.empty():
            self.tell(f"  {self.tracking.failures.get()}")
        for row in rows:
            self.console.print(evaluation_line(row), highlight=False, soft_wrap=True)
            if row["truncation_rate"] > TRUNCATION_WARNING:
                warning = f"  warning: {row['truncation_rate']:.0%} of completions are cut at the limit"
                self.console.print(warning, highlight=False)
        if rows and self.evaluations >= FIRST_FIT:
            try:
                self._fit(control)
            except Exception as error:  # a curve that cannot be fitted or drawn must not end a run
                self.console.print(f"  no fit: {type(error).__name__}: {error}", highlight=False, markup=False)

    def close(self) -> None:
        """End the live display and the trackers."""
        self.tracking.close()
        if self.live:
            self.live.progress.stop()

    def _print(self, *lines: str) -> None:
        for line in lines:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _fit(self, control: Control) -> None:
        from scalerl_mini.scaling import fit, gain_below, one_line, read_curve  # slow to import, and not needed before

        fitted = fit(read_curve(self.folder))
        (self.folder / "fit.json").write_text(fitted.to_json() + "\n", encoding="utf-8")
        fitted.plot(self.folder / "curve.png")
        self.console.print(f"  fit: {one_line(fitted).removeprefix('fit: ')}", highlight=False, soft_wrap=True)
        if fitted.curve.downstream:
            self.console.print(f"  downstream: {fitted.curve.downstream}", highlight=False, soft_wrap=True)
        evaluation = self.config.evaluation
        least, horizon = evaluation.stop_when_gain_below, evaluation.stop_horizon
        if least and fitted.surface is not None and gain_below(fitted, horizon * fitted.last, least):
            self.reason = f"gain up to {horizon:g} times the compute is below {least:g} (95 %)"
            control.request_stop("finished")


class Live:
    """A progress bar with the pass rate, lag, speeds of both sides and the time left."""

    def __init__(self, steps: int, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        self.progress = Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[text]}"), console=console)
        self.task = self.progress.add_task("training", total=steps, text="starting")
        self.progress.start()
        self.before: tuple[float, int, int] | None = None  # when the last row came, and its tokens

    def step(self, row: dict[str, Any]) -> None:
        now, generated, trained = time.monotonic(), row["generated_tokens"], row["trained_tokens"]
        text = f"reward {row['reward_mean']:.2f}  lag {row['lag_mean']:.1f} (max {row['lag_max']})"
        if self.before:
            seconds = max(now - self.before[0], 1e-3)
            speeds = (generated - self.before[1]) / seconds, (trained - self.before[2]) / seconds
            text += f"  generated {speeds[0]:.0f} tok/s  trained {speeds[1]:.0f} tok/s"
        self.before = (now, generated, trained)
        self.progress.update(self.task, completed=row["step"], text=text + _troubles(row))


def step_line(row: dict[str, Any]) -> str:
    """One optimiser step in one line."""
    return (
        f"step {row['step']:4d}  reward {row['reward_mean']:.3f}  groups {row['effective_groups']:3d}/{row['groups']}  "
        f"lag {row['lag_min']}/{row['lag_mean']:.1f}/{row['lag_max']}  ratio max {_number(row['ratio_max'])}  "
        f"mismatch {_small(row['mismatch_kl'])}  entropy {_number(row['entropy'])}  grad {_number(row['grad_norm'])}  "
        f"wait {row['generator_wait_s']:.2f}/{row['trainer_wait_s']:.2f} s  {row['generated_tokens']} tokens{_troubles(row)}"
    )


def _troubles(row: dict[str, Any]) -> str:
    """What went wrong in a step, at the end of its line; empty when nothing did."""
    cut = f"  {row['truncation_rate']:.0%} cut at the limit" if row["truncation_rate"] > TRUNCATION_WARNING else ""
    dropped = f"  {row['dropped_tokens']} tokens without a finite log-probability" if row["dropped_tokens"] else ""
    return cut + dropped + _grading(row) + (f"  SKIPPED: {row['skipped']}" if row["skipped"] else "")


def _grading(row: dict[str, Any]) -> str:
    """How often the grader failed, of a step or an evaluation; empty when it never did."""
    errors, timeouts = (
        row[f"grading_{kind}"] + row.get(f"downstream_grading_{kind}", 0) for kind in ("errors", "timeouts")
    )
    return f"  grading failed: {errors} errors, {timeouts} time-outs (see logs/)" if errors + timeouts else ""


def evaluation_line(row: dict[str, Any]) -> str:
    """One evaluation in one line."""
    return (
        f"evaluation of version {row['policy_version']}: pass rate {row['pass_rate']:.3f} +- {row['pass_rate_stderr']:.3f} "
        f"after {row['generated_tokens']} tokens, {row['wall_seconds']:.0f} s  "
        f"(interrupted {row['interruption_rate']:.0%}, length {row['mean_length']:.1f}){_downstream(row)}{_grading(row)}"
    )


def _downstream(row: dict[str, Any]) -> str:
    """Pass rate of the downstream task; empty when there is none."""
    if "downstream_pass_rate" not in row:
        return ""
    return f"  downstream {row['downstream_pass_rate']:.3f} +- {row['downstream_pass_rate_stderr']:.3f}"


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
