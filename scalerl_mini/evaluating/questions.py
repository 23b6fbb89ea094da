"""What is asked of a model: its run's tasks, or those named on the command line, each with its limits and its grading.

Everything is checked here, without torch: a wrong option costs a second and one line.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from scalerl_mini.config import Config
from scalerl_mini.config_groups import RolloutConfig, TaskConfig
from scalerl_mini.errors import UserError
from scalerl_mini.evaluating.subject import Subject
from scalerl_mini.gpu import ask_gpus
from scalerl_mini.model_folder import read_json
from scalerl_mini.rollout.vllm_package import check_heads, check_vllm
from scalerl_mini.tasks import Task, load_task
from scalerl_mini.training.placement import check_placement
from scalerl_mini.training.preflight import Tokenizer, check_lengths, check_prompts, check_weights, note_repeats


@dataclass(frozen=True)
class Question:
    """The first `prompts` held-out prompts of a task. downstream: the run's task that is evaluated and never trained."""

    config: TaskConfig
    task: Task
    rollout: RolloutConfig
    prompts: int
    downstream: bool = False


def find_questions(
    subject: Subject, names: tuple[str, ...], options: tuple[str, ...], most: int | None
) -> list[Question]:
    """names: tasks; without any, those of the run. options: a TOML table for each name, or one for the run's task. most:
    prompts of each task.

    Asked without a name, a run's own questions are exactly those of its evals.jsonl. Raises UserError.
    """
    config = subject.config
    if not (names or subject.knows_task):
        raise UserError(f"{subject.name} does not say what to ask; name a task, for example --task gsm8k --options ...")
    if options and not names:
        names = (config.task.name,)
    if len(options) not in (0, len(names)):
        raise UserError(f"{len(options)} --options for {len(names)} --task; give each task its own, '{{}}' for none")
    if names:
        tables = map(_read_table, options) if options else [None] * len(names)
        named = [_task(config.task, name, table) for name, table in zip(names, tables, strict=True)]
        return [Question(one, task := _load(one), config.rollout, _count(task, most)) for one in named]
    trained, evaluation = _load(config.task), config.evaluation
    found = [Question(config.task, trained, config.rollout, _count(trained, most or evaluation.prompts))]
    if evaluation.downstream.prompts:
        other = evaluation.downstream.task(config.task)
        task, rollout = _load(other), evaluation.downstream.rollout(config.rollout)
        found.append(Question(other, task, rollout, _count(task, most or evaluation.downstream.prompts), True))
    return found


def check_questions(subject: Subject, questions: list[Question]) -> None:
    """Model, tasks, engine and device go together. Raises UserError."""
    config, tokenizer = subject.config, Tokenizer(subject.folder, subject.config.model.chat_template)
    check_weights(subject.folder)
    if config.rollout.engine == "vllm":
        device = config.runtime.generator_devices[0]
        check_vllm(device)
        check_heads(read_json(subject.folder / "config.json"), device)
    for question in questions:
        check_lengths(question.task, question.rollout, subject.folder, tokenizer)
    check_placement(_on_one_device(config), ask_gpus)


def _on_one_device(config: Config) -> Config:
    """Nothing is trained, so neither the trainer's device nor a second generator's matters."""
    device = config.runtime.generator_devices[0]
    placed = {"generators": 1, "generator_device": device, "trainer_device": device}
    return config.model_copy(update={"runtime": config.runtime.model_copy(update=placed)})


def _read_table(text: str) -> dict[str, Any]:
    try:
        tree = tomllib.loads(f"options = {text}")
    except (ValueError, RecursionError):
        tree = {}
    if list(tree) != ["options"] or not isinstance(tree["options"], dict):
        raise UserError(f"--options {text!r:.80} is no TOML table; write for example '{{path = \"data.jsonl\"}}'")
    return tree["options"]


def _task(trained: TaskConfig, name: str, options: dict[str, Any] | None) -> TaskConfig:
    """A task under the grading limits of the configuration's own, and with its options when it is the same one."""
    if options is None:
        options = trained.options if name == trained.name else {}
    return trained.model_copy(update={"name": name, "options": options})


def _load(config: TaskConfig) -> Task:
    task = load_task(config.name, **config.options)
    check_prompts(task)
    note_repeats(task)
    if not task.held_out:
        raise UserError(f"task {config.name} has no held-out prompts; nothing could be asked")
    return task


def _count(task: Task, most: int | None) -> int:
    return min(most or len(task.held_out), len(task.held_out))
