"""Grading code that hangs, dies, eats memory or returns rubbish: counted, never waited for, never believed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from scalerl_mini.config_groups import TaskConfig
from scalerl_mini.rollout.grading import GradingPool, InlineGrader, WorkerGrader, make_graders
from scalerl_mini.rollout.grading_process import GraderFailed
from scalerl_mini.tasks import load_task
from scalerl_mini.tasks.grade import Grade, Verdict
from tests.fakes import FakeTask
from tests.rollout.hostile_task import Hostile, Trusted

HOSTILE = "tests.rollout.hostile_task:Hostile"
PATIENCE_S = 120.0
MakeGrader = Callable[..., WorkerGrader]


def workers() -> list[psutil.Process]:
    """Grading processes of this one that are alive."""
    found = []
    for child in psutil.Process().children():
        try:
            if "scalerl_mini.rollout.grading_worker" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def grades(grader: WorkerGrader, count: int) -> dict[Hashable, Grade]:
    """The next `count` grades."""
    end, found = time.monotonic() + PATIENCE_S, {}
    while len(found) < count:
        assert time.monotonic() < end, f"only {found}"
        found |= dict(grader.collect())
        time.sleep(0.005)
    return found


@pytest.fixture(scope="module")
def make_grader() -> Iterator[MakeGrader]:
    """Graders of the hostile task; equal limits share a pool, for a start takes a while."""
    pools: dict[Any, GradingPool] = {}

    def make(**limits: Any) -> WorkerGrader:
        config = TaskConfig(**{"name": HOSTILE, "grade_workers": 1, "grade_timeout_s": 60.0, **limits})
        pool = pools.setdefault(repr(config), GradingPool(config))
        return WorkerGrader(pool, "train")

    yield make
    for worker in workers():
        worker.kill()


def one(grader: WorkerGrader, completion: str) -> Grade:
    grader.submit("key", 3, completion)
    return grades(grader, 1)["key"]


GOOD = [
    ("right", 1.0), ("wrong", 0.0), ("", 0.0), ("return bool", 1.0), ("return int", 1.0), ("return half", 0.5),
    ("print much", 1.0), ("length " + "7" * 50_000, 1.0), ("\x00", 0.0), ("\ud800\udfff", 0.0), ("\n\r\u2028{}", 0.0),
]  # fmt: skip
BAD = [
    ("raise what\never", "ValueError: what ever"),
    ("raise " + "long" * 10_000, "ValueError: long"),
    ("raise \ud800", r"ValueError: \ud800"),
    ("exit", "SystemExit: 0"),
    ("recurse", "RecursionError"),
    ("int " + "9" * 10_000, "ValueError: Exceeds the limit"),
    ("return nan", "grade returned nan, which is no number in [0, 1]"),
    ("return inf", "grade returned inf"),
    ("return none", "grade returned None"),
    ("return text", "grade returned '1.0'"),
    ("return two", "grade returned 2.0"),
    ("return minus", "grade returned -0.5"),
    ("return list", "grade returned [1.0]"),
    ("return array", "grade returned a Unspeakable"),
    ("return other", "KeyError"),
]


@pytest.mark.parametrize(("completion", "reward"), GOOD, ids=range(len(GOOD)))
def test_grades_come_back(make_grader: MakeGrader, completion: str, reward: float) -> None:
    assert one(make_grader(), completion) == Grade(reward)


@pytest.mark.parametrize(("completion", "reason"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("inline", [False, True], ids=["worker", "inline"])
def test_an_error_has_reward_0_and_a_reason(
    make_grader: MakeGrader, completion: str, reason: str, inline: bool
) -> None:
    """A trusted task that breaks its word by an exception or a wrong value is treated alike."""
    if inline:
        grader = InlineGrader(Trusted(), "train")
        grader.submit("key", 3, completion)
        ((_, result),) = grader.collect()
    else:
        result = one(make_grader(), completion)
    assert (result.reward, result.verdict) == (0.0, Verdict.ERROR)
    assert reason in result.reason
    assert len(result.reason) <= 310
    assert "\n" not in result.reason


@pytest.mark.parametrize(
    ("completion", "reason"), [("die", "exit code 7"), ("segfault", "exit code -11"), ("memory", "MemoryError")]
)
def test_a_worker_that_dies_is_replaced(make_grader: MakeGrader, completion: str, reason: str) -> None:
    """Memory: 64 MiB are allowed, the bomb would take all there is."""
    grader = make_grader(grade_memory_mib=64)
    result = one(grader, completion)
    assert (result.reward, result.verdict) == (0.0, Verdict.ERROR)
    assert reason in result.reason or (completion == "memory" and "exit code" in result.reason)
    assert one(grader, "right") == Grade(1.0)


@pytest.mark.parametrize("completion", ["loop", "sleep", "stop"])
def test_a_worker_that_hangs_is_killed_and_replaced(make_grader: MakeGrader, completion: str) -> None:
    grader = make_grader(grade_timeout_s=1.5)
    one(grader, "right")
    before = {worker.pid for worker in workers()}
    start = time.monotonic()
    result = one(grader, completion)
    assert 1.4 < time.monotonic() - start < PATIENCE_S
    assert (result.reward, result.verdict) == (0.0, Verdict.TIMEOUT)
    assert "task.grade_timeout_s = 1.5" in result.reason
    left = {worker.pid for worker in workers()}
    assert len(before - left) == 1
    assert one(make_grader(), "right") == Grade(1.0)


def test_one_slow_grade_holds_nobody_else_up(make_grader: MakeGrader) -> None:
    """`submit` and `collect` return at once, and the second worker goes on meanwhile."""
    grader = make_grader(grade_workers=2, grade_timeout_s=8.0)
    for number in range(4):
        grader.submit(number, 0, "right")
    grades(grader, 4)
    start = time.monotonic()
    grader.submit("slow", 0, "sleep")
    for number in range(50):
        grader.submit(number, 0, "right" if number % 2 else "wrong")
    assert time.monotonic() - start < 1
    found = grades(grader, 50)
    assert time.monotonic() - start < 8
    assert found == {number: Grade(float(number % 2)) for number in range(50)}
    assert grades(grader, 1)["slow"].verdict == Verdict.TIMEOUT


def test_a_long_completion_is_not_given_to_the_code(make_grader: MakeGrader) -> None:
    result = one(make_grader(grade_input_chars=10), "right" + " " * 6)
    assert "a completion of 11 characters is above task.grade_input_chars" in result.reason
    assert result.verdict == Verdict.ERROR


@pytest.mark.parametrize("task", [HOSTILE, "arithmetic"])
def test_an_answer_that_is_code_does_nothing(make_grader: MakeGrader, tmp_path: Path, task: str) -> None:
    file = tmp_path / "owned"
    code = f"__import__('os').system('touch {file}')"
    completions = [
        code,
        f"</think>{code}<eos>",
        f"</think>$(touch {file})",
        f"{{{{{code}}}}}",
        f"!!python/object:{code}",
    ]
    if task == "arithmetic":
        grader, _ = make_graders(load_task(task, train_prompts=5, held_out_prompts=5), TaskConfig())
    else:
        grader = make_grader()
    for number, completion in enumerate(completions):
        grader.submit(number, 3, completion)
    found = grades(grader, len(completions))  # type: ignore[arg-type]
    assert set(found.values()) == {Grade(0.0)}
    assert not file.exists()


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    """SIGKILL of the process that samples, while its worker is in an endless loop."""
    file = tmp_path / "pid"
    parent = os.fork()
    if not parent:
        pool = GradingPool(TaskConfig(name=HOSTILE, grade_workers=1, grade_timeout_s=1e4))
        grader = WorkerGrader(pool, "train")
        grader.submit(0, 0, f"loop {file}")
        time.sleep(1e4)
    wait(lambda: file.exists() and file.read_text() != "")
    worker = psutil.Process(int(file.read_text()))
    assert worker.ppid() == parent
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def wait(predicate: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_task_that_cannot_be_built_in_a_worker_is_named(make_grader: MakeGrader) -> None:
    grader = make_grader(options={"broken_in_worker": True, "owner": os.getpid()})
    grader.submit("key", 0, "right")
    with pytest.raises(GraderFailed, match=r"Hostile cannot be graded in a worker.*FileNotFoundError: the data"):
        grades(grader, 1)


def test_who_is_graded_where() -> None:
    """Only a task that says so is graded in the process that samples."""
    arithmetic = load_task("arithmetic", train_prompts=5, held_out_prompts=5)
    assert isinstance(make_graders(arithmetic, TaskConfig())[0], InlineGrader)
    assert isinstance(make_graders(FakeTask(), TaskConfig())[1], InlineGrader)
    train, held_out = make_graders(Hostile(), TaskConfig(name=HOSTILE))
    assert isinstance(train, WorkerGrader)
    assert isinstance(held_out, WorkerGrader)
    assert train.pool is held_out.pool
    assert not train.pool.threads  # nothing is started before it is needed
