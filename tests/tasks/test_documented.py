"""docs/tasks.md does what it says: its class, its line of JSON and its commands, as a reader would copy them."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from scalerl_mini.cli.eval import command as eval_command
from scalerl_mini.config import load_config
from scalerl_mini.tasks import load_task
from scalerl_mini.training.preflight import preflight
from tests.cli.refusals import call

TEXT = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def commands(name: str) -> list[list[str]]:
    """Words of each documented call of `scalerl-mini NAME`, comments left out."""
    lines = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[2:] for words in found if words[:2] == ["scalerl-mini", name]]


def settings(words: list[str]) -> tuple[str, ...]:
    return tuple(value for word, value in itertools.pairwise(words) if word == "--set")


@pytest.fixture(autouse=True)
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's folder, with own.py and more lines like the one shown."""
    monkeypatch.chdir(tmp_path)
    (source,) = blocks("python")
    Path("own.py").write_text(source)
    (line,) = blocks("json")
    row = json.loads(line)
    first, second = map(int, row["prompt"].split("+"))
    assert row["answer"] == str(first + second)
    rows = [row | {"prompt": f"{first}+{n}", "answer": str(first + n)} for n in range(10, 99)]
    Path("data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


def test_the_documented_runs_pass_all_checks() -> None:
    runs = [settings(words) for words in commands("train")]
    local = [one for one in runs if not any("dataset" in setting for setting in one)]
    assert (len(runs), len(local)) == (3, 2)
    for one in local:
        preflight(load_config(None, one))
    load_config(None, *[one for one in runs if one not in local])


def test_the_documented_class_grades_its_own_answers() -> None:
    task = load_task("own.py:AddHundred")
    assert not {prompt.text for prompt in task.train} & {prompt.text for prompt in task.held_out}
    assert len({prompt.level for prompt in task.held_out[:30]}) > 5
    for prompt in task.held_out:
        assert task.grade(prompt, f"0+0=0</think>{prompt.answer}<eos>") == 1
        assert task.grade(prompt, f"{prompt.answer}</think>0<eos>") == 0


def test_the_documented_evaluations_are_calls_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    found = commands("eval")
    assert len(found) == 5
    for words in found:
        eval_command.make_context("eval", list(words))
    (runnable,) = (words for words in found if words[0].startswith("builtin:"))
    assert call("eval", *runnable, "--samples", "1") == 0
    assert "own.py:AddHundred" in capsys.readouterr().out
