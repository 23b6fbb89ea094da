"""An asynchronous run whose launcher is killed several times: every prompt in its turn, compute without a jump or a hole."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import psutil
import pytest

from scalerl_mini.config import load_config
from scalerl_mini.rollout.curriculum import Curriculum
from scalerl_mini.tasks import load_task
from scalerl_mini.training.checkpoint import read_state
from scalerl_mini.training.checkpoint_names import list_checkpoints
from scalerl_mini.training.row_log import read_rows
from scalerl_mini.training.run_folder import RunFolder
from tests.end_to_end.command import TINY, Launched, steps_done

pytestmark = pytest.mark.slow

STEPS, KILLS, PER_STEP = 20, 3, 4
SETTINGS = (*TINY, f"training.steps={STEPS}", "runtime.checkpoint_every=2", "objective.no_positive_resampling=false")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps with three deaths in it; two epochs of 40 prompts."""
    folder, chance = tmp_path_factory.mktemp("killed") / "run", random.Random(5)
    arguments, settings = ("--out", str(folder), "--seed", "4"), SETTINGS
    for number in range(KILLS):
        run = Launched(*arguments, settings=settings)
        target = 3 + number * 5 + chance.randrange(3)
        run.wait_for(lambda: steps_done(folder) >= target, f"step {target}", 600)  # noqa: B023
        run.process.kill()
        run.end(600)
        assert not [one for one in run.left_behind() if isinstance(one, psutil.Process)]
        arguments, settings = ("--resume", str(folder)), ()
    code, text = Launched(*arguments).end(600)
    assert code == 0, text
    return folder


def test_every_step_and_evaluation_is_there_once(folder: Path) -> None:
    assert [row["step"] for row in read_rows(folder / "steps.jsonl")] == list(range(1, STEPS + 1))
    assert [row["step"] for row in read_rows(folder / "evals.jsonl")] == [*range(0, STEPS, 3), STEPS]
    assert max(row["lag_max"] for row in read_rows(folder / "steps.jsonl")) <= 4


def test_prompts_are_trained_as_the_curriculum_dictates(folder: Path) -> None:
    """The first prompt of each step is in its rollouts; the history knows of all; nothing is outstanding at the end."""
    config = load_config(folder / "config.toml")
    train = load_task(config.task.name, **config.task.options).train
    curriculum = Curriculum(len(train), config.seed, None)
    dictated = [curriculum.draw()[0] for _ in range(STEPS * PER_STEP)]
    for step in range(1, STEPS + 1):
        prompt = read_rows(folder / "rollouts" / f"step-{step:05d}.jsonl")[0]["prompt"]
        assert prompt == train[dictated[(step - 1) * PER_STEP]].text
    state = read_state(list_checkpoints(folder / "checkpoints")[0])
    assert state["outstanding"] == []
    assert set(map(int, state["curriculum"]["pass_rate"])) == set(dictated)
    assert (state["curriculum"]["epoch"], state["curriculum"]["cursor"]) == (curriculum.epoch, curriculum.cursor)


def test_compute_goes_on_without_a_jump_or_a_hole(folder: Path) -> None:
    steps, evals = read_rows(folder / "steps.jsonl"), read_rows(folder / "evals.jsonl")
    for earlier, later in itertools.pairwise(steps):
        assert later["wall_seconds"] > earlier["wall_seconds"]
        batch = later["generated_tokens"] - earlier["generated_tokens"]
        assert batch == pytest.approx(later["mean_length"] * PER_STEP * 4)
    assert steps[0]["generated_tokens"] == pytest.approx(steps[0]["mean_length"] * PER_STEP * 4)
    for name in ("device_hours", "flops", "generated_tokens", "trained_tokens", "wall_seconds"):
        assert all(later[name] >= earlier[name] for earlier, later in itertools.pairwise(evals))
    busy = sum(row["train_s"] + row["trainer_wait_s"] for row in steps)
    assert busy == pytest.approx(steps[-1]["wall_seconds"], rel=0.5)


def test_the_record_knows_every_resume(folder: Path) -> None:
    versions = [entry["from_version"] for entry in RunFolder(folder).read_record()["history"]]
    assert len(versions) == KILLS
    assert versions == sorted(versions)
