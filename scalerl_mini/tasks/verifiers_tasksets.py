"""Single-turn environments of the `verifiers` package (0.4) as tasks: their prompts, and their reward functions.

There a taskset yields tasks, each with a prompt and functions marked as rewards that read a trace of messages. Here such a
task is a `Prompt`; a completion becomes the one assistant message of a trace, and the weighted sum of the rewards is the
grade. What needs more than a prompt and an answer - tools, a container, a judge model, several turns - is refused.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from typing import Any

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.answers import answer_text
from scalerl_mini.tasks.base import Prompt
from scalerl_mini.tasks.splitting import split_off


class VerifiersTaskset:
    """The task `verifiers`.

    environment: name of an installed taskset, or of a module that exports one. arguments: its own configuration. most:
    rows that are read, for there are endless ones. held_out_prompts, split_seed: as of `jsonl`. level: a field of the
    rows that tells their difficulty. template: what is tokenised, with {prompt} in it, and {system} where the rows have a
    system prompt. thinking: as of `jsonl`; the rewards see the text after `</think>`. largest_reward: what a sum of
    rewards is divided by, to lie in [0, 1]. Raises UserError.
    """

    name = "verifiers"

    def __init__(
        self,
        environment: str,
        arguments: dict[str, Any] | None = None,
        most: int = 10_000,
        held_out_prompts: int = 200,
        split_seed: int = 0,
        level: str = "",
        template: str = "{prompt}",
        thinking: bool = False,
        largest_reward: float = 1.0,
    ) -> None:
        if "{prompt}" not in template:
            raise UserError(f"task.options.template = {template!r:.80} has no {{prompt}}; write where the prompt goes")
        if not largest_reward > 0:
            raise UserError(f"task.options.largest_reward = {largest_reward} must be above 0")
        self.rows = list(itertools.islice(_load(environment, arguments or {}), most))
        for row in self.rows[:1]:
            _check_single_turn(row, environment)
        prompts = [_prompt(row, number, level, template, environment) for number, row in enumerate(self.rows)]
        self.train, self.held_out, self.repeats = split_off(prompts, held_out_prompts, split_seed)
        self.thinking, self.largest_reward = thinking, largest_reward

    def grade(self, prompt: Prompt, completion: str) -> float:
        """Sum of the weighted rewards over `largest_reward`; 0 when the thinking part was never closed."""
        text = answer_text(completion, self.thinking)
        if text is None:
            return 0.0
        row = self.rows[int(prompt.answer)]
        trace = _trace(row, text)
        asyncio.run(row.score(trace))
        return trace.reward / self.largest_reward


def _verifiers() -> Any:
    try:
        import verifiers.v1
    except ImportError as error:
        raise UserError(
            f"task.name = 'verifiers' needs verifiers 0.4 ({error}); pip install 'scalerl-mini[verifiers]'"
        ) from None
    return verifiers.v1


def _load(environment: str, arguments: dict[str, Any]) -> Any:
    """The taskset, to be iterated. Raises UserError when it is not one that a single answer can solve."""
    vf = _verifiers()
    from verifiers.v1.utils.generic import concrete_type
    from verifiers.v1.utils.loaders import environment_class, taskset_class

    try:
        found = taskset_class(environment)
        config = (concrete_type(found, vf.TasksetConfig) or vf.TasksetConfig).model_validate(
            {"id": environment, **arguments}
        )
        taskset, runner = found(config), environment_class(environment)
    except Exception as error:  # of the package, of the environment's module, of its configuration
        reason = " ".join(f"{type(error).__name__}: {error}"[:300].split())
        raise UserError(f"environment {environment!r} cannot be loaded ({reason}); check task.options") from None
    if runner is not vf.SingleAgentEnv:
        raise UserError(f"environment {environment!r} runs by rules of its own ({runner.__name__}); not supported")
    return taskset


def _check_single_turn(row: Any, environment: str) -> None:
    """Every row of a taskset is of one type, so one tells for all."""
    needs = {
        "a container": row.NEEDS_CONTAINER,
        "tools": bool(row.toolsets(row.config)),
        "a judge model": bool(row.config.judges),
        "a runtime to grade in": any(_needs_runtime(reward) for reward in row.hooks("reward")),
    }
    if missing := ", ".join(what for what, needed in needs.items() if needed):
        raise UserError(f"environment {environment!r} needs {missing}; only single-turn ones without are supported")
    if not row.hooks("reward"):
        raise UserError(f"environment {environment!r} has no reward function; nothing could be graded")


def _needs_runtime(function: Any) -> bool:
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _prompt(row: Any, number: int, level: str, template: str, environment: str) -> Prompt:
    """A row as a prompt; its answer is its number, the rewards know the rest."""
    system, asked = _texts(row, f"environment {environment!r}, row {number}")
    if system and "{system}" not in template:
        raise UserError(
            f"environment {environment!r} has a system prompt; write where it goes into task.options.template: {{system}}"
        )
    if level and not hasattr(row.data, level):
        raise UserError(f"environment {environment!r}: its rows have no field {level!r}; check task.options.level")
    text = template.replace("{system}", system).replace("{prompt}", asked)
    return Prompt(text, str(number), str(getattr(row.data, level)) if level else "all")


def _texts(row: Any, where: str) -> tuple[str, str]:
    """(system prompt, user's prompt); "" without a system prompt."""
    messages = _messages(row)
    roles = [message.role for message in messages]
    if roles not in (["user"], ["system", "user"]) or not all(isinstance(one.content, str) for one in messages):
        raise UserError(f"{where}: its prompt is {', '.join(roles) or 'empty'}; only one user text is supported")
    return (messages[0].content if len(messages) == 2 else ""), messages[-1].content


def _messages(row: Any) -> list[Any]:
    """Everything that is said before the answer."""
    vf, data = _verifiers(), row.data
    system = [vf.SystemMessage(content=data.system_prompt)] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*system, vf.UserMessage(content=data.prompt)]
    return [*system, *(data.prompt or [])]


def _trace(row: Any, answer: str) -> Any:
    """The conversation that the rewards read: the prompt's messages and the answer."""
    vf = _verifiers()
    messages = [*_messages(row), vf.AssistantMessage(content=answer)]
    nodes = [
        vf.MessageNode(parent=number - 1 if number else None, message=message, sampled=number == len(messages) - 1)
        for number, message in enumerate(messages)
    ]
    task = vf.TraceTask(type=type(row).__name__, data=row.data)
    return vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()), nodes=nodes)
