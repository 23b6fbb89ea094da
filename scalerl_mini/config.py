"""The typed configuration tree: from TOML and `key=value` settings to a `Config`, and back.

A run is completely described by this tree: `train --dry-run` prints it, the run folder keeps it as `config.toml`, and
`train --config runs/NAME/config.toml` repeats the run. The groups are in `config_groups`. No torch is imported here.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field, ValidationError

from scalerl_mini.config_groups import (
    EvaluationConfig,
    Group,
    ModelConfig,
    ObjectiveConfig,
    PipelineConfig,
    RolloutConfig,
    RuntimeConfig,
    TaskConfig,
    TrainingConfig,
)
from scalerl_mini.contradictions import NO_SUCH_KEY, contradiction
from scalerl_mini.errors import UserError
from scalerl_mini.recipes import recipe_tree

DEEPEST = 20  # names in the key of a setting; a task's options may be nested


class Config(Group):
    """The whole tree."""

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything that is random in the run.")
    model: ModelConfig = Field(default_factory=ModelConfig)
    task: TaskConfig = Field(default_factory=TaskConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    pipeline: PipelineConfig = Field(default_factory=PipelineConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)


def load_config(path: Path | None = None, settings: tuple[str, ...] = (), recipe: str | None = None) -> Config:
    """The defaults, a recipe, a TOML file and `key=value` settings, each laid over what comes before.

    Raises UserError with the path of the wrong key and how to mend it.
    """
    tree = _overlay(recipe_tree(recipe) if recipe else {}, _read_toml(path) if path else {})
    laid: dict[str, Any] = {}
    set_keys = {_apply_setting(laid, setting) for setting in settings}
    tree = _overlay(tree, laid)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise UserError(_explain(error, path, set_keys)) from None
    if reason := contradiction(config):
        raise UserError(reason)
    return config


def dump_toml(config: Config) -> str:
    """The configuration as TOML, every key written out; `load_config` of it gives the same configuration."""
    return tomli_w.dumps(config.model_dump())


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two trees of keys as one; where both have a value, `above` counts. Constants belong to a loss: a new loss drops
    those of the old one."""
    if "loss" in above and above["loss"] != below.get("loss"):
        below = {key: value for key, value in below.items() if key != "constants"}
    merged = below | above
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            merged[key] = _overlay(below[key], above[key])
    return merged


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read configuration {path}: {error.strerror}; give --config a TOML file") from None
    except (ValueError, RecursionError) as error:  # also no UTF-8, numbers too long, brackets too deep
        hint = "train --dry-run prints a valid one"
        raise UserError(f"configuration {path} is not valid TOML: {error}; {hint}") from None


def _apply_setting(tree: dict[str, Any], setting: str) -> str:
    """Lay one `key=value` over the tree; returns the key."""
    key, separator, text = setting.partition("=")
    keys = [name.strip() for name in key.split(".")]
    if not separator or not all(keys) or len(keys) > DEEPEST:
        raise UserError(f"--set {setting!r:.80}: write it as group.key=value, for example training.steps=20")
    node = tree
    for name in keys[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise UserError(f"--set {setting!r}: {name} is a value, not a group; leave away what follows it")
    node[keys[-1]] = _parse_value(text.strip())
    return ".".join(keys)


def _parse_value(text: str) -> Any:
    """A TOML value, or the bare text itself; text that would go on to other keys is no value."""
    try:
        tree = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return tree["value"] if len(tree) == 1 else text


def _explain(error: ValidationError, path: Path | None, set_keys: set[str]) -> str:
    """One line about the first wrong key: its name, where it was given, what is wrong, what it should be."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    key = ".".join(location)
    by_setting = path is None or any(
        f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.") for other in set_keys
    )
    given = "--set" if by_setting else str(path)
    known = ", ".join(_group(location if first["type"] == "model_type" else location[:-1]).model_fields)
    if first["type"] == "extra_forbidden":
        if reason := NO_SUCH_KEY.get(".".join(location[:-1]), {}).get(location[-1]):
            return f"configuration key {key:.80} in {given} does not exist: {reason}"
        return f"unknown configuration key {key:.80} in {given}; known keys here: {known}"
    if first["type"] == "model_type":
        return f"configuration key {key} in {given} is a group; set one of its keys: {known}"
    message = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"configuration key {key} in {given}: {message}, got {first['input']!r:.80}{_meaning(location)}{more}"


def _meaning(location: list[str]) -> str:
    """The description of the wrong key, as a hint."""
    fields = [
        field for depth, name in enumerate(location) if (field := _group(location[:depth]).model_fields.get(name))
    ]
    return f" - {fields[-1].description}" if fields and fields[-1].description else ""


def _group(location: list[str]) -> type[Group]:
    """The configuration group at a path of keys; the last group on the way when the path leads into a value."""
    group: type[Group] = Config
    for name in location:
        annotation: Any = group.model_fields[name].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, Group)):
            break
        group = annotation
    return group
