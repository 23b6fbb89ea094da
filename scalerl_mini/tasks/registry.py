"""From a task's name in the configuration to the task: a built-in one, or a class of the user's own."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from scalerl_mini.errors import UserError
from scalerl_mini.tasks.arithmetic import Arithmetic
from scalerl_mini.tasks.base import Task
from scalerl_mini.tasks.jsonl import Jsonl
from scalerl_mini.tasks.mathematics import Gsm8k, MathProblems
from scalerl_mini.tasks.verifiers_tasksets import VerifiersTaskset

BUILT_IN: dict[str, Callable[..., Task]] = {
    "arithmetic": Arithmetic,
    "jsonl": Jsonl,
    "math": MathProblems,
    "gsm8k": Gsm8k,
    "verifiers": VerifiersTaskset,
}


def load_task(name: str, **options: object) -> Task:
    """The task called `name`, built with `options`.

    `name` is a built-in name, `package.module:Class`, or `path/to/file.py:Class` for a file of one's own.
    Raises UserError for an unknown name, an option the task does not have, or a class that is no Task.
    """
    factory = BUILT_IN[name] if name in BUILT_IN else _find_class(name)
    try:
        inspect.signature(factory).bind(**options)
    except ValueError as error:
        raise UserError(f"task.name: {name!r} is no Task, and cannot be called like one ({error})") from error
    except TypeError as error:
        known = ", ".join(inspect.signature(factory).parameters) or "none"
        raise UserError(f"task options of {name!r}: {error}; its options are: {known}") from error
    try:
        task = factory(**options)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever a class of the user's own may raise
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"task {name!r} cannot be built ({reason}); check task.options and the class") from error
    if not isinstance(task, Task):
        raise UserError(f"task.name: {name!r} is no Task; it needs name, train, held_out and grade(prompt, completion)")
    return task


def _find_class(name: str) -> Callable[..., Task]:
    if ":" not in name:
        raise UserError(
            f"task.name: {name!r} is unknown; use one of {', '.join(BUILT_IN)}, or module:Class, or file.py:Class"
        )
    return find_in_module(name, "task.name")


def find_in_module(name: str, key: str) -> Callable[..., Any]:
    """What `module:name` or `file.py:name` names. Raises UserError, with the configuration key, unless it is callable."""
    location, _, attribute = name.rpartition(":")
    try:
        found = getattr(_import(location), attribute)
    except (Exception, SystemExit) as error:  # whatever a file of the user's own may raise
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{key}: {name!r} cannot be loaded ({reason}); check the spelling and the file") from error
    if not callable(found):
        raise UserError(f"{key}: {name!r} is no class or function; name one")
    return found


def _import(location: str) -> ModuleType:
    if not location.endswith(".py"):
        return importlib.import_module(location)
    spec = importlib.util.spec_from_file_location(Path(location).stem, location)
    if spec is None or spec.loader is None:
        raise ImportError(f"{location} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
