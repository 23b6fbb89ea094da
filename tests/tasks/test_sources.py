"""Data sets by name, without a network: what `datasets` reads from a folder, a file and a saved set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.tasks import Task, load_task
from scalerl_mini.tasks.sources import Source

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `datasets` prepares stays in the test's folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a data set lies on the hub: a file for each split, here with the columns of GSM8K."""
    path = tmp_path / "questions"
    path.mkdir()
    for split, numbers in (("train", range(1, 13)), ("test", range(11, 16))):
        rows = [{"question": f"What is {n} times 1000?", "answer": f"Easy.\n#### {n},000", "n": n} for n in numbers]
        (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sizes(task: Task) -> tuple[int, int, int]:
    return len(task.train), len(task.held_out), task.repeats  # type: ignore[attr-defined]


def test_both_splits_of_a_folder_without_a_prompt_in_both(folder: Path) -> None:
    pytest.importorskip("math_verify")
    task = load_task("gsm8k", dataset=str(folder), held_out_split="test", level="n")
    assert sizes(task) == (10, 5, 2)
    assert {prompt.level for prompt in task.held_out} == {"11", "12", "13", "14", "15"}
    assert task.held_out[0].answer == "11000"
    assert task.grade(task.held_out[0], "It is 11,000.") == 1


def test_one_split_is_split_and_a_part_of_it_can_be_named(folder: Path) -> None:
    columns = {"prompt": "question", "answer": "n", "held_out_prompts": 3}
    assert sizes(load_task("jsonl", dataset=str(folder), **columns)) == (9, 3, 0)
    assert sizes(load_task("jsonl", dataset=str(folder), split="train[:5]", **columns)) == (2, 3, 0)


def test_held_out_rows_alone_make_a_task_that_can_be_evaluated(folder: Path) -> None:
    columns = {"prompt": "question", "answer": "n"}
    assert sizes(load_task("jsonl", dataset=str(folder), held_out_split="test", **columns)) == (10, 5, 2)
    named = load_task("jsonl", dataset=str(folder), split="", held_out_split="test", **columns)
    of_file = load_task("jsonl", held_out_path=str(folder / "test.jsonl"), **columns)
    assert sizes(of_file) == (0, 5, 0)
    assert named.held_out == of_file.held_out


def test_files_and_saved_sets_are_the_same_rows(folder: Path, tmp_path: Path) -> None:
    whole = datasets.load_dataset(str(folder))
    whole.save_to_disk(tmp_path / "saved")
    whole["train"].save_to_disk(tmp_path / "one")
    whole["train"].to_parquet(tmp_path / "train.parquet")
    names = [folder, tmp_path / "saved", tmp_path / "one", tmp_path / "train.parquet", folder / "train.jsonl"]
    found = [Source(dataset=str(name), split="train").read()[0] for name in names]
    assert [[row for _, row in rows] for rows in found] == [[row for _, row in found[0]]] * len(names)
    assert found[0][3][0] == f"data set {folder}, split train, row 3"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dataset": "FOLDER", "split": "valid"}, r"split 'valid', cannot be loaded \(ValueError: Unknown split"),
        ({"dataset": "FOLDER", "subset": "hard"}, "BuilderConfig 'hard' not found"),
        ({"dataset": "FOLDER", "path": "a.jsonl"}, "both a dataset and a path"),
        ({"split": "test", "path": "a.jsonl"}, "belong to a dataset"),
        ({}, "task.options.path is missing"),
        ({"dataset": "FOLDER/train.tar"}, "cannot be loaded"),
        (
            {"dataset": "FOLDER", "answer": "result"},
            "split train, row 0: column 'answer' .*it has: question, answer, n",
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(folder: Path, options: dict[str, str], said: str) -> None:
    (folder / "train.tar").touch()
    named = {key: value.replace("FOLDER", str(folder)) for key, value in options.items()}
    said = said.replace("column 'answer'", "column 'result'")
    with pytest.raises(UserError, match=said) as refusal:
        load_task("jsonl", **{"prompt": "question", **named})
    assert "\n" not in str(refusal.value)


def test_without_a_network_it_says_how_to_go_on_with_files(tmp_path: Path) -> None:
    options = 'task.options={dataset="openai/gsm8k"}'
    command = [sys.executable, "-m", "scalerl_mini", "train", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, "--set", "task.name=gsm8k", "--set", options],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: data set 'openai/gsm8k', split 'train', cannot be loaded")
    assert "JSON lines in task.options.path" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_without_the_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"needs datasets; pip install 'scalerl-mini\[datasets\]'"):
        load_task("jsonl", dataset="openai/gsm8k")


def test_gsm8k_has_its_subset_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify")
    asked = []

    def load_dataset(name: str, subset: str | None, split: str) -> list[dict[str, str]]:
        asked.append((name, subset, split))
        return [{"question": f"{split} {n}", "answer": f"#### {n}"} for n in range(3)]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    load_task("gsm8k", dataset="openai/gsm8k", held_out_split="test")
    assert sorted(asked) == [("openai/gsm8k", "main", "test"), ("openai/gsm8k", "main", "train")]
