"""Running a study: what has ended is not run again, what was interrupted is resumed, what failed is named with its log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scalerl_mini.ablation import running
from scalerl_mini.ablation.running import ended, run_study, runs_at_once
from tests.ablation.fabricated import COMMAND, diary, study

SECONDS = 100.0
WHOLE = [f"{name} seed-{seed} {what}" for seed in (0, 1) for name in "ab" for what in ("started", "ended")]
# A study in a process of its own, so that it can be killed.
PROCESS = """
import sys
from pathlib import Path
from scalerl_mini.ablation import running
from tests.ablation.fabricated import COMMAND, study
running.TRAIN = COMMAND
running.run_study(study(Path(sys.argv[1]), "a", "b"), 1, print)
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "TRAIN", COMMAND)


def quiet(_: str) -> None:
    pass


def wait_for(predicate: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not predicate():
        assert time.monotonic() < end
        time.sleep(0.02)


def killed_in_the_second_run(folder: Path, how: signal.Signals) -> None:
    """Start a study and end its process while `b seed-0` is being trained."""
    (folder / "hold-b").touch()
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((root, os.environ.get("PYTHONPATH", "")))}
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for((folder / "b" / "seed-0" / "run.json").exists)
    process.send_signal(how)
    process.wait(SECONDS)
    assert diary(folder) == WHOLE[:3]


def test_runs_one_after_another_and_only_once(tmp_path: Path) -> None:
    said: list[str] = []
    assert run_study(study(tmp_path, "a", "b"), 1, said.append) == []
    assert diary(tmp_path) == WHOLE
    assert run_study(study(tmp_path, "a", "b"), 1, said.append) == []
    assert diary(tmp_path) == WHOLE
    assert said[-1] == "4 runs, 4 already ended"


def test_side_by_side_but_no_more_than_asked(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"hold-{name}").touch()
    seen: list[list[str]] = []

    def watch() -> None:
        wait_for(lambda: len(diary(tmp_path)) >= 2)
        time.sleep(0.5)
        seen.append(sorted(diary(tmp_path)))
        for name in "ab":
            (tmp_path / f"hold-{name}").unlink()

    watcher = threading.Thread(target=watch)
    watcher.start()
    run_study(study(tmp_path, "a", "b"), 2, quiet)
    watcher.join()
    assert seen == [["a seed-0 started", "b seed-0 started"]]
    assert sorted(diary(tmp_path)) == sorted(WHOLE)


def test_how_many_fit_into_the_cores(tmp_path: Path) -> None:
    found = study(tmp_path, "a", "b")
    assert [runs_at_once(found, cores) for cores in (1, 2, 3, 4, 16)] == [1, 1, 1, 2, 8]
    found = replace(found, settings=("runtime.generators=3", "runtime.threads=2"))
    assert [runs_at_once(found, cores) for cores in (7, 8, 16)] == [1, 1, 2]


def test_a_failed_run_is_named_with_its_log_and_the_others_go_on(tmp_path: Path) -> None:
    found = study(tmp_path, "a", "b", seeds=1)
    (tmp_path / "fail-a").touch()
    log = tmp_path / "a" / "seed-0.log"
    assert run_study(found, 1, quiet) == [f"a seed 0: failed with exit 1; see {log}"]
    assert "no such model" in log.read_text()
    assert ended(tmp_path / "b" / "seed-0")
    (tmp_path / "fail-a").unlink()
    assert run_study(found, 1, quiet) == []
    assert diary(tmp_path)[-1] == "a seed-0 ended"


def test_terminated_it_stops_its_run_in_order_and_resumes_it(tmp_path: Path) -> None:
    killed_in_the_second_run(tmp_path, signal.SIGTERM)
    assert json.loads((tmp_path / "b" / "seed-0" / "run.json").read_text())["reason"] == "interrupted"
    (tmp_path / "hold-b").unlink()
    assert run_study(study(tmp_path, "a", "b"), 1, quiet) == []
    assert diary(tmp_path) == [*WHOLE[:3], "b seed-0 resumed", *WHOLE[3:]]


def test_killed_hard_it_waits_for_the_run_that_goes_on(tmp_path: Path) -> None:
    killed_in_the_second_run(tmp_path, signal.SIGKILL)
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if "still being trained" in text:
            (tmp_path / "hold-b").unlink()

    assert run_study(study(tmp_path, "a", "b"), 1, tell) == []
    assert any("still being trained" in text for text in said)
    assert diary(tmp_path) == WHOLE


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"state": "finished", "reason": null}', True),
        ('{"state": "stopped", "reason": "the gain is surely below 0.01"}', True),
        ('{"state": "stopped", "reason": "interrupted"}', False),
        ('{"state": "failed", "reason": "trainer died"}', False),
        ('{"state": "running", "reason": null}', False),
        ("{", False),
    ],
)
def test_what_counts_as_ended(tmp_path: Path, record: str, expected: bool) -> None:
    (tmp_path / "run.json").write_text(record)
    assert ended(tmp_path) is expected
    assert not ended(tmp_path / "nothing")
