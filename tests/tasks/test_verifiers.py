"""Single-turn environments of `verifiers`: prompts, rewards of one answer, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scalerl_mini.config_groups import TaskConfig
from scalerl_mini.errors import UserError
from scalerl_mini.rollout.grading_process import GradingProcess
from scalerl_mini.tasks import Task, load_task

pytest.importorskip("verifiers.v1")

ENVIRONMENT = """
import verifiers.v1 as vf

class SumData(vf.TaskData):
    answer: str
    digits: int

class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def correct(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 5 and trace.num_turns == 1)

class SumConfig(vf.TasksetConfig):
    size: int = 40
    system: str | None = None

class Sums(vf.Taskset[SumTask, SumConfig]):
    INFINITE = False
    def load(self):
        for n in range(self.config.size):
            data = SumData(prompt=f"{n}+{n}", answer=str(2 * n), digits=len(str(n)), system_prompt=self.config.system)
            yield SumTask(data, self.config.task)

__all__ = ["Sums"]
"""


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an environment whose module can be imported."""
    return environment(tmp_path, monkeypatch, "toy_sums", ENVIRONMENT)


def environment(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> str:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name.replace("_", "-")


def load(name: str, **options: object) -> Task:
    return load_task("verifiers", environment=name, **{"held_out_prompts": 10, "largest_reward": 1.5, **options})


def test_its_rows_are_prompts_and_its_rewards_grade_the_answer(sums: str) -> None:
    task = load(sums, template="<bos>{prompt}=<think>", thinking=True, level="digits")
    assert (len(task.train), len(task.held_out)) == (30, 10)
    assert {prompt.level for prompt in task.train} == {"1", "2"}
    for prompt in (*task.train, *task.held_out):
        n = int(prompt.text.removeprefix("<bos>").partition("+")[0])
        assert task.grade(prompt, f"adding</think>{2 * n}<eos>") == 1.0
        assert task.grade(prompt, f"adding</think>{2 * n + 1}<eos>") == pytest.approx(1 / 3)
        assert task.grade(prompt, f"adding</think>it is {2 * n}<eos>") == 0
        assert task.grade(prompt, f"{2 * n}") == 0


def test_the_split_depends_on_its_seed_and_arguments_reach_the_environment(sums: str) -> None:
    first, again, other = load(sums), load(sums), load(sums, split_seed=1)
    assert first.held_out == again.held_out != other.held_out
    assert len(load(sums, arguments={"size": 12}).train) == 2
    assert len(load(sums, most=15).train) == 5


def test_a_system_prompt_has_its_place_in_the_template(sums: str) -> None:
    with pytest.raises(UserError, match=r"write where it goes .*\{system\}"):
        load(sums, arguments={"system": "Add."})
    task = load(sums, arguments={"system": "Add."}, template="{system}|{prompt}|")
    assert task.train[0].text.startswith("Add.|")
    assert task.grade(task.train[0], str(2 * int(task.train[0].text.split("|")[1].split("+")[0]))) == 1


@pytest.mark.slow
def test_it_is_graded_in_workers(sums: str) -> None:
    options = {"environment": sums, "held_out_prompts": 10, "largest_reward": 1.5}
    task = load(sums)
    worker = GradingProcess(TaskConfig(name="verifiers", options=options))
    try:
        answer = str(2 * int(task.train[0].text.partition("+")[0]))
        assert worker.grade("train", 0, answer).reward == 1
        assert worker.grade("train", 0, answer + "0000").reward == 0
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("class SumTask(", "class SumTask(", None),
        ("    @vf.reward(weight=1.0)", "    NEEDS_CONTAINER = True\n    @vf.reward(weight=1.0)", "needs a container"),
        ("correct(self, trace)", "correct(self, trace, runtime)", "needs a runtime to grade in"),
        ('prompt=f"{n}+{n}"', "prompt=None", "row 0: its prompt is empty"),
        ("vf.reward(weight=1.0)", "vf.metric", None),
        ('__all__ = ["Sums"]', "", "cannot be loaded .*defines no `__all__`"),
    ],
)
def test_what_one_answer_cannot_solve_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, said: str | None
) -> None:
    name = environment(tmp_path, monkeypatch, "toy_other", ENVIRONMENT.replace(before, after))
    if said is None:
        assert len(load(name).train) == 30
        return
    with pytest.raises(UserError, match=said) as refusal:
        load(name)
    assert "\n" not in str(refusal.value)


def test_bad_options_are_refused(sums: str) -> None:
    for options, said in (
        ({"arguments": {"sise": 3}}, "cannot be loaded .*sise"),
        ({"level": "depth"}, "have no field 'depth'"),
        ({"template": "x"}, "has no {prompt}"),
        ({"largest_reward": 0}, "must be above 0"),
    ):
        with pytest.raises(UserError, match=said):
            load(sums, **options)
    with pytest.raises(UserError, match="'no-such-environment' cannot be loaded"):
        load("no-such-environment")
