"""Trackers are shown the rows of the logs, and nothing that they do reaches the run."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from scalerl_mini.config import Config, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.training import extras, trackers
from scalerl_mini.training.row_log import append_row
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.watch import RunWatcher
from tests.training.test_watch import EVALUATION, STEP


def config(*names: str) -> Config:
    return load_config(None, (f"runtime.trackers={list(names)}",))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An empty run folder named "run"."""
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        folder.create("", {"started": "2026-12-07T12:00:00+00:00"})
    return folder.path


def watch(run: Path, tracked: Config, steps: list[int]) -> str:
    """One start of the launcher that logs rows of these steps; what it told."""
    console = Console(file=io.StringIO(), width=200)
    watcher = RunWatcher(run, tracked, console)
    watcher.start()
    for step in steps:
        append_row(run / "steps.jsonl", STEP | {"step": step, "loss": step / 10})
        append_row(run / "evals.jsonl", EVALUATION | {"step": step, "levels": {"2": 0.5}})
        watcher.update(None)  # type: ignore[arg-type]
    watcher.close()
    watcher.update(None)  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined]


def read_back(run: Path, tag: str) -> list[tuple[int, float]]:
    """(step, value) of a tag, as TensorBoard itself shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(run / "tensorboard"), purge_orphaned_data=True).Reload()
    return [(event.step, pytest.approx(event.value)) for event in shown.Scalars(tag)]  # type: ignore[misc]


def test_tensorboard_shows_steps_and_evaluations(run: Path) -> None:
    pytest.importorskip("tensorboard")
    told = watch(run, config("tensorboard"), [1, 2, 3])
    assert "given up" not in told
    assert read_back(run, "train/loss") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert read_back(run, "evaluation/pass_rate") == [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert read_back(run, "evaluation/levels/2") == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_tensorboard_forgets_the_steps_behind_a_checkpoint(run: Path) -> None:
    pytest.importorskip("tensorboard")
    watch(run, config("tensorboard"), [1, 2, 3])
    RunFolder(run).rewind(1)
    watch(run, config("tensorboard"), [2, 3, 4])
    assert [step for step, _ in read_back(run, "train/loss")] == [1, 2, 3, 4]


class FakeRun:
    """What `wandb.init` and `trackio.init` give."""

    def __init__(self, **options: Any) -> None:
        self.options, self.rows, self.finished = options, [], False

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        self.rows.append(values | ({} if step is None else {"step": step}))

    def finish(self) -> None:
        self.finished = True


@pytest.fixture(params=["wandb", "trackio"])
def stub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[FakeRun]]:
    """A module of that name, and the runs it has been asked for."""
    runs: list[FakeRun] = []
    module = ModuleType(request.param)
    module.init = lambda **options: runs.append(FakeRun(**options)) or runs[-1]  # type: ignore[attr-defined,func-returns-value]
    monkeypatch.setitem(sys.modules, request.param, module)
    return request.param, runs


def test_the_others_get_the_rows_and_go_on_as_the_same_run(run: Path, stub: tuple[str, list[FakeRun]]) -> None:
    name, runs = stub
    watch(run, config(name), [1, 2])
    watch(run, config(name), [3])
    first, second = runs
    assert first.finished
    assert [row["train/loss"] for row in first.rows if "train/loss" in row] == [0.1, 0.2]
    assert [row["step"] for row in second.rows] == [3, 3]
    same = "id" if name == "wandb" else "name"
    assert first.options[same] == second.options[same]
    assert {first.options["resume"], second.options["resume"]} == {"allow"}
    RunFolder(run).write_record({"started": "another run in the same folder"})
    watch(run, config(name), [4])
    assert runs[2].options[same] != first.options[same]


@pytest.mark.parametrize("fault", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_given_up_and_said_once(run: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    pytest.importorskip("tensorboard")

    def fail(*_: Any, **__: Any) -> None:
        raise SystemExit("no network\nand more")

    module = ModuleType("wandb")
    module.init = FakeRun  # type: ignore[attr-defined]
    monkeypatch.setattr(*((module, "init") if fault == "init" else (FakeRun, fault)), fail)
    monkeypatch.setitem(sys.modules, "wandb", module)
    told = watch(run, config("wandb", "tensorboard"), [1, 2, 3])
    assert told.count("wandb was given up (SystemExit: no network); the run and its logs go on") == 1
    assert [step for step, _ in read_back(run, "train/loss")] == [1, 2, 3]


def test_a_tracker_that_hangs_is_not_waited_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    module = ModuleType("wandb")
    module.init = lambda **_: never.wait()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(trackers, "CLOSE_S", 0.1)
    monkeypatch.setattr(trackers, "MOST_WAITING", 2)
    told = watch(run, config("wandb"), list(range(1, 20)))
    assert told.count("\nstep") + told.startswith("step") == 19
    never.set()


def test_without_trackers_nothing_is_started(run: Path) -> None:
    watch(run, Config(), [1])
    assert not any(thread.name == "trackers" for thread in threading.enumerate())
    assert not (run / "tensorboard").exists()


def test_a_missing_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"runtime.trackers = \['wandb'\] needs wandb, .*'scalerl-mini\[wandb\]'"):
        extras.check_packages(config("wandb"))
