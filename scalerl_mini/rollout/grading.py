"""Rewards of completions, without trusting the code that gives them.

    generator ─► submit(key, prompt, text) ─► queue ─► thread ─► worker process: task.grade ─► thread ─► queue ─► collect()

A task that calls itself trusted (the built-in one: microseconds, pure, no exception possible) is graded on the spot. The
code of anybody else runs in worker processes that may hang, die or eat memory: each has a thread that waits for it no
longer than the time limit, kills and replaces it. Nobody waits for a slow grade but its own group: decoding goes on, and
a group is handed over when all its grades have come.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from typing import Literal, Protocol

from scalerl_mini.config_groups import TaskConfig
from scalerl_mini.rollout.grading_process import GradingProcess
from scalerl_mini.tasks import Task
from scalerl_mini.tasks.grade import Grade, Verdict, failed, grade

Part = Literal["train", "held_out"]
Key = tuple[int, int]  # a completion's, as in its request
MOST_REASONS = 20  # logged by one process; all are counted

log = logging.getLogger(__name__)


class Grader(Protocol):
    """One user's view: what it submits comes back to it, in any order."""

    def submit(self, key: Key, prompt: int, completion: str) -> None:
        """Ask for the grade of a completion of the part's prompt number `prompt`."""
        ...

    def collect(self) -> list[tuple[Key, Grade]]:
        """Grades that have come since the last call; never waits. Raises what kept the workers from starting."""
        ...


class InlineGrader:
    """Grades at once, in this process."""

    def __init__(self, task: Task, part: Part) -> None:
        self.task, self.prompts = task, getattr(task, part)
        self.done: list[tuple[Key, Grade]] = []

    def submit(self, key: Key, prompt: int, completion: str) -> None:
        self.done.append((key, grade(self.task, self.prompts[prompt], completion)))

    def collect(self) -> list[tuple[Key, Grade]]:
        done, self.done = self.done, []
        return done


class WorkerGrader:
    """Hands completions to the workers of a pool and keeps what comes back."""

    def __init__(self, pool: GradingPool, part: Part) -> None:
        self.pool, self.part = pool, part
        self.done: deque[tuple[Key, Grade] | Exception] = deque()

    def submit(self, key: Key, prompt: int, completion: str) -> None:
        self.pool.submit(self, key, prompt, completion)

    def collect(self) -> list[tuple[Key, Grade]]:
        grades = []
        while self.done:
            item = self.done.popleft()
            if isinstance(item, Exception):
                raise item
            grades.append(item)
        return grades


class GradingPool:
    """`task.grade_workers` workers, each with a thread that talks to it; started with the first completion."""

    def __init__(self, config: TaskConfig) -> None:
        self.config = config
        self.jobs: queue.SimpleQueue[tuple[WorkerGrader, Key, int, str]] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.reasons = 0

    def submit(self, grader: WorkerGrader, key: Key, prompt: int, completion: str) -> None:
        """Queue one completion; its grade will be appended to `grader.done`."""
        if not self.threads:
            self.threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.config.grade_workers)]
            for thread in self.threads:  # a worker dies with its thread, and a daemon thread with this process
                thread.start()
        self.jobs.put((grader, key, prompt, completion))

    def _serve(self) -> None:
        worker = GradingProcess(self.config)
        while True:
            grader, key, prompt, completion = self.jobs.get()
            try:
                result = self._grade(worker, grader.part, prompt, completion)
            except Exception as error:  # the worker does not even start: nobody can grade
                grader.done.append(error)
                continue
            self._note(result)
            grader.done.append((key, result))

    def _grade(self, worker: GradingProcess, part: Part, prompt: int, completion: str) -> Grade:
        if len(completion) > self.config.grade_input_chars:
            return failed(f"a completion of {len(completion)} characters is above task.grade_input_chars")
        return worker.grade(part, prompt, completion)

    def _note(self, result: Grade) -> None:
        """Log why a grade failed, the first times."""
        if result.verdict != Verdict.GRADED and self.reasons < MOST_REASONS:
            self.reasons += 1
            log.warning("grading %s: %s", result.verdict.name.lower(), result.reason)


def make_graders(task: Task, config: TaskConfig) -> tuple[Grader, Grader]:
    """Graders of the training and of the held-out prompts; they share their workers."""
    if getattr(task, "trusted", False):
        return InlineGrader(task, "train"), InlineGrader(task, "held_out")
    pool = GradingPool(config)
    return WorkerGrader(pool, "train"), WorkerGrader(pool, "held_out")
