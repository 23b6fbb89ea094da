"""Prompts and answers from rows of two columns: a file of JSON lines, {"prompt": "...", "answer": "..."}, or a data set."""

from __future__ import annotations

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.answers import Compare, answer_text, check_math_verify, exact, math, number
from scalerl_mini.tasks.base import Prompt
from scalerl_mini.tasks.sources import TRAIN, Row, Source
from scalerl_mini.tasks.splitting import keep_apart, split_off

GRADINGS: dict[str, Compare] = {"exact": exact, "number": number, "math": math}


class Jsonl:
    """A task from files or from a data set by name (`Source`).

    path: training prompts. held_out_path: held-out prompts; without it `held_out_prompts` of `path` are held out,
    chosen by `split_seed`; alone, the task can be evaluated and not trained. dataset, subset, split, held_out_split: the
    same from a data set; an empty split is as no path. prompt, answer, level: names of the columns; without `level`
    all prompts have the level "all". template: the text of a prompt, with {prompt} in it; chat markup is
    `model.chat_template`'s matter. thinking: the template opens a thinking part. grading: exact, number, math, or
    `path.py:function` of (answer, text) -> [0, 1]. Prompts met twice are dropped and counted in `repeats`. Raises
    UserError with the place of a bad row.
    """

    name = "jsonl"

    def __init__(
        self,
        path: str = "",
        held_out_path: str = "",
        held_out_prompts: int = 200,
        split_seed: int = 0,
        dataset: str = "",
        subset: str = "",
        split: str = TRAIN,
        held_out_split: str = "",
        prompt: str = "prompt",
        answer: str = "answer",
        level: str = "",
        template: str = "{prompt}",
        thinking: bool = False,
        grading: str = "exact",
    ) -> None:
        if "{prompt}" not in template:
            raise UserError(f"task.options.template = {template!r:.80} has no {{prompt}}; write where the prompt goes")
        train, held_out = Source(path, held_out_path, dataset, subset, split, held_out_split).read()

        def prompts(rows: list[Row]) -> list[Prompt]:
            return [_prompt(row, where, (prompt, answer, level), template) for where, row in rows]

        if held_out is None:
            parts = split_off(prompts(train), held_out_prompts, split_seed)
        else:
            parts = keep_apart(prompts(train), prompts(held_out))
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


def _prompt(row: dict[str, object], where: str, columns: tuple[str, str, str], template: str) -> Prompt:
    asked, answer, level = (_cell(row, column, where) if column else "all" for column in columns)
    return Prompt(template.replace("{prompt}", asked), answer, level)


def _cell(row: dict[str, object], column: str, where: str) -> str:
    """A text of a row; a whole or decimal number is written out."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        found = f"{value!r:.40}" if column in row else f"no such column; it has: {', '.join(row)[:80]}"
        raise UserError(f"{where}: column {column!r} must be text or a number, found {found}")
    return str(value)
