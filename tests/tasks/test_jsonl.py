"""Prompts from files: the split, repeats, gradings, and a clear line about each bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.tasks import load_task
from scalerl_mini.tasks.answers import answer_text, exact, number


def write(path: Path, rows: list[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def rows(count: int, first: int = 0) -> list[object]:
    return [{"prompt": f"Say {n}.", "answer": n} for n in range(first, first + count)]


def texts(prompts: object) -> set[str]:
    return {prompt.text for prompt in prompts}  # type: ignore[attr-defined]


def test_the_split_depends_on_its_seed_alone_and_no_prompt_is_in_both(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*rows(20), {"prompt": " Say  3. ", "answer": "3"}])
    first, again = (load_task("jsonl", path=path, held_out_prompts=5) for _ in range(2))
    other = load_task("jsonl", path=path, held_out_prompts=5, split_seed=1)
    assert (first.train, first.held_out) == (again.train, again.held_out)
    assert texts(first.held_out) != texts(other.held_out)
    assert (len(first.train), len(first.held_out), first.repeats) == (15, 5, 1)  # type: ignore[attr-defined]
    assert not texts(first.train) & texts(first.held_out)


def test_a_text_may_hold_any_separator_but_a_line_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"prompt": f"{n}\u2028\x85?", "answer": n}, ensure_ascii=False) for n in range(3)]
    path.write_text("\r\n".join(lines), encoding="utf-8", newline="")
    task = load_task("jsonl", path=str(path), held_out_prompts=1)
    assert texts([*task.train, *task.held_out]) == {f"{n}\u2028\x85?" for n in range(3)}


def test_held_out_prompts_of_a_file_leave_the_training_set(tmp_path: Path) -> None:
    train, held_out = write(tmp_path / "a.jsonl", rows(10)), write(tmp_path / "b.jsonl", rows(4, first=8))
    task = load_task("jsonl", path=train, held_out_path=held_out)
    assert (len(task.train), len(task.held_out), task.repeats) == (8, 4, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", "line 2: not an object"),
        ('{"prompt": "a"}', "line 2: column 'answer' must be text or a number, found no such column"),
        ('{"prompt": "", "answer": 1}', "line 2: column 'prompt' must be text"),
        ('{"prompt": "a", "answer": true}', "line 2: column 'answer' must be text"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "answer": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=said) as refusal:
        load_task("jsonl", path=str(path))
    assert str(path) in str(refusal.value)


def test_bad_options_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rows(3))
    for options, said in (
        ({"held_out_prompts": 3}, "leaves no training set"),
        ({"held_out_path": path}, "every training prompt"),
        ({"held_out_prompts": 1, "grading": "close"}, "is unknown"),
        ({"held_out_prompts": 1, "template": "x"}, "has no {prompt}"),
        ({"held_out_prompts": 1, "grading": f"{tmp_path}/none.py:f"}, "task.options.grading"),
    ):
        with pytest.raises(UserError, match=said):
            load_task("jsonl", path=path, **options)


def test_a_function_of_ones_own_grades_in_workers_and_sees_the_answer_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rows(3))
    (tmp_path / "own.py").write_text("def half(answer, text):\n    return 0.5 * (text == 'ja ' + answer)\n")
    task = load_task("jsonl", path=path, held_out_prompts=1, template="<u>{prompt}", grading=f"{tmp_path}/own.py:half")
    prompt = task.train[0]
    assert prompt.text.startswith("<u>Say ")
    assert task.grade(prompt, f"<think>no</think> ja {prompt.answer}<|im_end|>") == 0.5
    assert not task.trusted  # type: ignore[attr-defined]


def test_only_what_follows_the_thinking_is_an_answer() -> None:
    assert answer_text("5") == "5"
    assert answer_text("5", thinking=True) is None
    assert answer_text("<think>5") is None
    assert answer_text("<think>5</think>\n 6 <|im_end|>7") == "6"


def test_numbers_are_compared_exactly() -> None:
    for expected, text, reward in (
        ("-12", "It is -12.", 1),
        ("-12", "12", 0),
        ("1250", "1,250 apples", 1),
        ("1/2", "so 0.50", 1),
        ("3", "3 or 4", 0),
        ("7", "none", 0),
        ("7", "1/0", 0),
        ("7", "9" * 100_000, 0),
    ):
        assert number(expected, text) == reward, (expected, text[:20])
    assert exact("a", " a\n") == 1
    assert exact("a", "A") == 0
