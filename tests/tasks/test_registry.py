"""Tasks by name: built-in, from a module, from a file, and clear errors for what is none of these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.tasks import Task, load_task

OWN_TASK = """
from scalerl_mini.tasks import Prompt

class Echo:
    name = "echo"
    def __init__(self, word="hello"):
        self.train = [Prompt(word, word, "easy")]
        self.held_out = self.train
    def grade(self, prompt, completion):
        return float(completion == prompt.answer)

class Nothing:
    pass

number = 3
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    file = tmp_path / "own_task.py"
    file.write_text(OWN_TASK)
    return file


def test_built_in() -> None:
    task = load_task("arithmetic", train_prompts=7)
    assert isinstance(task, Task)
    assert task.name == "arithmetic"
    assert len(task.train) == 7


def test_class_in_a_file(own_file: Path) -> None:
    task = load_task(f"{own_file}:Echo", word="hi")
    assert task.grade(task.train[0], "hi") == 1.0


def test_class_in_a_module(own_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(own_file.parent)
    assert load_task("own_task:Echo").train[0].text == "hello"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("arithmetics", "use one of arithmetic"),
        ("no_such_module:Task", "cannot be loaded"),
        ("nowhere/file.py:Task", "cannot be loaded"),
        ("FILE:Missing", "cannot be loaded"),
        ("FILE:Nothing", "is no Task"),
        ("FILE:number", "is no class"),
    ],
)
def test_bad_names_are_explained(name: str, words: str, own_file: Path) -> None:
    with pytest.raises(UserError, match=words):
        load_task(name.replace("FILE", str(own_file)))


def test_an_unknown_option_is_explained_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"train_promts.*its options are: train_prompts, held_out_prompts"):
        load_task("arithmetic", train_promts=3)


def test_tasks_import_no_torch() -> None:
    code = "import sys, scalerl_mini.tasks; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_verifiers_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(UserError, match=r"needs verifiers 0.4 .*pip install 'scalerl-mini\[verifiers\]'"):
        load_task("verifiers", environment="sums")
