"""Evaluation of exactly one version, each prompt graded once, and an honest standard error."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from scalerl_mini.rollout.engines import TorchEngine
from scalerl_mini.rollout.evaluation import EvaluationWorker, summarise
from scalerl_mini.rollout.evaluation_sets import EvaluationSet
from scalerl_mini.rollout.grading import InlineGrader
from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.rollout.sampling import RequestFactory
from scalerl_mini.runtime.evaluation_board import NOBODY, EvaluationBoard, result_dtype
from scalerl_mini.runtime.segment_names import run_prefix, unlink_all
from scalerl_mini.tasks import Prompt
from tests.policy.tiny import Tiny, tiny_policy

PROMPTS, SAMPLES = 40, 3


class LengthTask:
    """Reward: the share of completion characters that are digits; counts how often each prompt was graded."""

    name = "length"
    train: tuple[Prompt, ...] = ()
    held_out = tuple(Prompt(f"<bos>{n:02d}", "", f"level {n % 2}") for n in range(PROMPTS))

    def __init__(self) -> None:
        self.graded: Counter[str] = Counter()

    def grade(self, prompt: Prompt, completion: str) -> float:
        self.graded[prompt.text] += 1
        return sum(character.isdigit() for character in completion) / (len(completion) + 1)


@pytest.fixture
def board() -> Iterator[EvaluationBoard]:
    prefix = run_prefix()
    yield EvaluationBoard.create(f"{prefix}.evaluation", PROMPTS, SAMPLES)
    unlink_all(prefix)


def worker(
    board: EvaluationBoard, task: LengthTask, slots: int = 20, version: int = 7, owner: int = 0
) -> EvaluationWorker:
    policy = tiny_policy(Tiny())
    policy.version = version
    prompts = [tuple(policy.encode(prompt.text)) for prompt in task.held_out]
    interruption = Interruption((4,), (4,), 3, 3)
    engine = TorchEngine(policy, slots, 4, 8, 1.0, interruption)
    grader, levels = InlineGrader(task, "held_out"), [prompt.level for prompt in task.held_out]
    held_out = EvaluationSet("held-out", prompts, levels, grader, RequestFactory(0, 8, interruption))
    return EvaluationWorker(board, owner, engine, policy, [held_out], lambda: None)


def test_one_worker_grades_every_prompt(board: EvaluationBoard) -> None:
    task = LengthTask()
    board.open(7)
    assert (board.done, board.request, board.version) == (0, 1, 7)
    worker(board, task).share()
    assert board.done == PROMPTS
    assert set(task.graded.values()) == {SAMPLES}
    assert len(task.graded) == PROMPTS


@pytest.mark.parametrize("slots", [(3, 3), (20, 5), (200, 3)])
def test_two_workers_grade_each_prompt_once_and_change_nothing(board: EvaluationBoard, slots: tuple[int, int]) -> None:
    """Two threads on one board; who took which prompt does not matter for the result."""
    alone = LengthTask()
    board.open(7)
    worker(board, alone).share()
    expected = board.results.copy()
    board.open(7)
    assert board.done == 0
    tasks = LengthTask(), LengthTask()
    workers = [worker(board, task, count) for task, count in zip(tasks, slots, strict=True)]
    threads = [threading.Thread(target=one.share) for one in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert board.done == PROMPTS
    assert tasks[0].graded + tasks[1].graded == alone.graded
    for name in ("reward", "length", "sampled", "truncated", "interrupted"):
        assert np.array_equal(board.results[name], expected[name]), name
    assert np.allclose(board.results["logprob_sum"], expected["logprob_sum"], atol=1e-4)


def test_an_attached_board_is_the_same_board(board: EvaluationBoard) -> None:
    board.open(7)
    other = EvaluationBoard.attach(board.segment.path.name)
    assert [board.take(5, 7, 0), other.take(5, 7, 1)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert board.take(100, 7, 0) == list(range(10, PROMPTS))
    assert other.take(1, 7, 1) == []
    other.results[3]["done"] = True
    assert board.done == 1
    other.close()


def test_old_weights_are_refused(board: EvaluationBoard) -> None:
    board.open(8)
    task = LengthTask()
    with pytest.raises(RuntimeError, match="version 8 with weights of 7"):
        worker(board, task, version=7).share()
    assert not task.graded


def test_a_worker_that_comes_late_with_newer_weights_mixes_nothing_in(board: EvaluationBoard) -> None:
    board.open(7)
    task = LengthTask()
    worker(board, task, version=9).share()
    assert not task.graded
    assert board.take(2, 7, 0) == [0, 1]


def test_a_slow_worker_takes_nothing_from_the_next_evaluation(board: EvaluationBoard) -> None:
    """Between the grading of its last prompt and its next take the others finish, the trainer goes on and opens the next
    evaluation: sampling for that one under the old weights would mix two versions."""
    board.open(7)
    slow, fast = worker(board, LengthTask(), slots=SAMPLES), worker(board, LengthTask())
    opened = []

    def finish_and_open() -> None:
        if board.done and not opened:
            fast.share()
            assert board.done == PROMPTS
            board.open(8)
            opened.append(True)

    slow.beat = finish_and_open
    slow.share()
    assert opened
    assert board.done == 0
    assert (board.results["owner"] == NOBODY).all()


def test_what_a_dead_owner_left_is_handed_out_again_and_nothing_else(board: EvaluationBoard) -> None:
    """Owner 1 dies with prompts done and in work; owner 2 goes on undisturbed."""
    alone = LengthTask()
    board.open(7)
    worker(board, alone).share()
    expected = board.results.copy()
    board.open(7)
    dying, living = worker(board, LengthTask(), slots=9, owner=1), worker(board, LengthTask(), owner=2)

    def die() -> None:
        if board.done and dying.engine.running:
            raise SystemExit

    dying.beat = die
    with pytest.raises(SystemExit):
        dying.share()
    held = board.results["owner"] == 1
    finished = board.results["done"].copy()
    held_back = int((held & ~finished).sum())
    assert 0 < held_back < held.sum()
    living.share()
    assert board.done == PROMPTS - held_back
    request = board.request
    assert board.give_back(1) == np.flatnonzero(held & ~finished).tolist()
    assert board.request == request + 1
    living.share()
    assert board.done == PROMPTS
    assert not (board.results["owner"][~finished] == 1).any()
    for name in ("reward", "length", "sampled", "truncated", "interrupted"):
        assert np.array_equal(board.results[name], expected[name]), name
    assert board.give_back(1) == []
    assert board.request == request + 1


def test_rows_hold_what_was_sampled(board: EvaluationBoard) -> None:
    """Recomputed from the same requests in an engine of its own."""
    task = LengthTask()
    board.open(7)
    one = worker(board, task)
    one.share()
    engine = worker(board, task, slots=1).engine
    for prompt in (0, 17):
        for sample in range(SAMPLES):
            (held_out,) = one.sets
            ids = held_out.prompts[prompt]
            engine.submit(held_out.requests.make(ids, (prompt, sample), "held-out", prompt, 0, sample))
    while engine.running:
        for finished in engine.step():
            row, sample = board.results[finished.key[0]], finished.key[1]
            assert row["length"][sample] == len(finished.tokens)
            assert row["sampled"][sample] == finished.mask.sum()
            assert row["truncated"][sample] == (finished.finish == "length")
            assert row["interrupted"][sample] == finished.interrupted
            assert row["logprob_sum"][sample] == pytest.approx(finished.logprobs[finished.mask].sum(), abs=1e-4)
    assert board.results["interrupted"].any()
    assert (board.results["sampled"] < board.results["length"]).any()


def rows(rewards: np.ndarray) -> np.ndarray:
    """Result rows with these rewards [P, S]; every completion has 4 tokens, 3 of them sampled at log-probability -0.5."""
    results = np.zeros(len(rewards), result_dtype(rewards.shape[1]))
    results["reward"], results["length"], results["sampled"], results["logprob_sum"] = rewards, 4, 3, -1.5
    return results


def test_summary_by_hand() -> None:
    results = rows(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]))
    results["truncated"][0] = True
    results["interrupted"][1, 0] = True
    row = summarise(results, ["a", "b", "a", "b"])
    assert row["pass_rate"] == 0.5
    # variance within each prompt, divisor S - 1: 1/2, 0, 0, 1/2; mean 1/4; over 8 completions
    assert row["pass_rate_stderr"] == pytest.approx((0.25 / 8) ** 0.5)
    assert row["pass_rate_by_level"] == {"a": 0.25, "b": 0.75}
    assert (row["prompts"], row["samples_per_prompt"]) == (4, 2)
    assert (row["truncation_rate"], row["interruption_rate"], row["mean_length"]) == (0.25, 0.125, 4.0)
    assert row["entropy"] == pytest.approx(0.5)


def test_one_sample_a_prompt_gives_the_upper_bound() -> None:
    row = summarise(rows(np.array([[1.0], [0.0], [0.0], [0.0]])), ["a"] * 4)
    assert row["pass_rate_stderr"] == pytest.approx((0.25 * 0.75 / 4) ** 0.5)


@pytest.mark.parametrize("samples", [2, 4, 16])
def test_stderr_is_the_spread_of_repeated_evaluations(samples: int) -> None:
    """3000 simulated evaluations of 50 fixed prompts with pass rates of their own: the mean of the squared standard error
    is the variance of the pass rate (its own error: sqrt(2/3000) = 2.6 %; three of them are allowed)."""
    rng = np.random.default_rng(0)
    rates = rng.beta(0.5, 0.5, 50)
    draws = (rng.random((3000, 50, samples)) < rates[:, None]).astype(float)
    summaries = [summarise(rows(draw), ["a"] * 50) for draw in draws]
    spread = np.var([row["pass_rate"] for row in summaries], ddof=1)
    assert np.mean([row["pass_rate_stderr"] ** 2 for row in summaries]) == pytest.approx(spread, rel=0.08)
    assert spread < 0.8 * rates.mean() * (1 - rates.mean()) / (50 * samples)  # the between-prompt part is not in it
