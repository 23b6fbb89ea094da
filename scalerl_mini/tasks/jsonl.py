"""Prompts and answers from a file of JSON lines, one object a line: {"prompt": "...", "answer": "..."}."""

from __future__ import annotations

import json
from pathlib import Path

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.answers import Compare, answer_text, check_math_verify, exact, math, number
from scalerl_mini.tasks.base import Prompt
from scalerl_mini.tasks.splitting import keep_apart, split

GRADINGS: dict[str, Compare] = {"exact": exact, "number": number, "math": math}


class Jsonl:
    """A task from files.

    path: training prompts. held_out_path: held-out prompts; without it `held_out_prompts` of `path` are held out,
    chosen by `split_seed`. prompt, answer, level: names of the columns; without `level` all prompts have the level "all".
    template: what is tokenised, with {prompt} in it - a model's chat markup belongs here, written out. thinking: the
    template opens a thinking part. grading: exact, number, math, or `path.py:function` of (answer, text) -> [0, 1].
    Prompts met twice are dropped and counted in `repeats`. Raises UserError with file and line of a bad line.
    """

    name = "jsonl"

    def __init__(
        self,
        path: str,
        held_out_path: str = "",
        held_out_prompts: int = 200,
        split_seed: int = 0,
        prompt: str = "prompt",
        answer: str = "answer",
        level: str = "",
        template: str = "{prompt}",
        thinking: bool = False,
        grading: str = "exact",
    ) -> None:
        if "{prompt}" not in template:
            raise UserError(f"task.options.template = {template!r:.80} has no {{prompt}}; write where the prompt goes")
        columns = (prompt, answer, level)
        rows = read_prompts(Path(path), columns, template)
        if held_out_path:
            parts = keep_apart(rows, read_prompts(Path(held_out_path), columns, template))
        else:
            parts = split(rows, held_out_prompts, split_seed)
        self.train, self.held_out, self.repeats = parts
        self.thinking, self.compare = thinking, find_grading(grading)
        self.trusted = grading in ("exact", "number")  # pure, microseconds; Sympy and a user's code are neither

    def grade(self, prompt: Prompt, completion: str) -> float:
        """The grading's reward of the text after `</think>`; 0 when the thinking part was never closed."""
        text = answer_text(completion, self.thinking)
        return 0.0 if text is None else self.compare(prompt.answer, text)


def find_grading(name: str) -> Compare:
    """A grading by name, or a function of a file of one's own."""
    if name == "math":
        check_math_verify()
    if name in GRADINGS:
        return GRADINGS[name]
    if ".py:" not in name:
        raise UserError(f"task.options.grading = {name!r} is unknown; use {', '.join(GRADINGS)}, or path.py:function")
    from scalerl_mini.tasks.registry import find_in_module

    return find_in_module(name, "task.options.grading")


def read_prompts(path: Path, columns: tuple[str, str, str], template: str) -> list[Prompt]:
    """All prompts of a file, empty lines apart. Raises UserError when one cannot be used or there is none."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # other separators may stand inside a text
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a file of JSON lines in task.options") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; convert it, or unpack it") from None
    prompts = [_prompt(line, f"{path}, line {n}", columns, template) for n, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UserError(f"{path} has no lines; write one JSON object a line")
    return prompts


def _prompt(line: str, where: str, columns: tuple[str, str, str], template: str) -> Prompt:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON ({error}); write one whole object a line") from None
    if not isinstance(row, dict):
        raise UserError(f'{where}: not an object; write {{"{columns[0]}": "...", "{columns[1]}": "..."}}')
    asked, answer, level = (_cell(row, column, where) if column else "all" for column in columns)
    return Prompt(template.replace("{prompt}", asked), answer, level)


def _cell(row: dict[str, object], column: str, where: str) -> str:
    """A text of a row; a whole or decimal number is written out."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        found = f"{value!r:.40}" if column in row else f"no such column; it has: {', '.join(row)[:80]}"
        raise UserError(f"{where}: column {column!r} must be text or a number, found {found}")
    return str(value)
