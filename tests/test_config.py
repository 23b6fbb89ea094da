"""The configuration: every key documented and read, every value survives being written out, every mistake explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import scalerl_mini
from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.config_groups import Group
from scalerl_mini.errors import UserError

PACKAGE = Path(scalerl_mini.__file__).parent


def groups(model: type[BaseModel] = Config, name: str = "config") -> Iterator[tuple[str, type[BaseModel]]]:
    """(key, class) of every configuration group, the whole tree included."""
    yield name, model
    for key, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from groups(field.annotation, key)


def leaves() -> list[tuple[str, str]]:
    """(group, key) of every value."""
    return [
        (name, key)
        for name, model in groups()
        for key, field in model.model_fields.items()
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
    ]


# Every key has a meaning.


@pytest.mark.parametrize(("group", "key"), leaves())
def test_every_key_is_described(group: str, key: str) -> None:
    description = dict(groups())[group].model_fields[key].description
    assert description
    assert description.endswith(".")


def owner(node: ast.expr) -> str | None:
    """Last name of an expression: `self.config.rollout` -> "rollout"."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def aliases(tree: ast.AST) -> dict[str, set[str]]:
    """Names that stand for a configuration group in a module: by annotation, or by assignment from one."""
    by_class = {model.__name__: name for name, model in groups()}
    found: dict[str, set[str]] = {name: {name} for name, _ in groups()}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            for name in re.findall(r"\w+", ast.unparse(node.annotation)):
                if name in by_class:
                    found[by_class[name]].add(node.arg)
        if isinstance(node, ast.AnnAssign) and (name := ast.unparse(node.annotation)) in by_class:
            found[by_class[name]].add(owner(node.target) or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target, value in pairs(node):
                for names in found.values():
                    if owner(value) in names and (name := owner(target)):
                        names.add(name)
    return found


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Target and value of an assignment, tuples taken apart."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def keys_read(tree: ast.AST) -> set[tuple[str, str]]:
    """(group, key) of every `group.key` in a module, the group under any of its names there."""
    names = aliases(tree)
    return {
        (group, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        for group, known in names.items()
        if owner(node.value) in known
    }


def keys_read_by_methods(tree: ast.Module) -> set[tuple[str, str]]:
    """(group, key) of every `self.key` in a public method of a configuration class, such as EvaluationConfig.due."""
    by_class = {model.__name__: name for name, model in groups()}
    return {
        (by_class[cls.name], node.attr)
        for cls in tree.body
        if isinstance(cls, ast.ClassDef) and cls.name in by_class
        for method in cls.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute) and owner(node.value) == "self"
    }


def test_every_key_is_read_somewhere() -> None:
    read = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent == PACKAGE / "config_groups":
            read |= keys_read_by_methods(ast.parse(path.read_text()))
        elif path != PACKAGE / "config.py":
            read |= keys_read(ast.parse(path.read_text()))
    assert set(leaves()) - read == set()


def test_the_search_for_unread_keys_can_fail() -> None:
    source = (
        "def f(config: RolloutConfig, other):\n  options = config.interruption\n  return options.phrase, other.slots"
    )
    read = keys_read(ast.parse(source))
    assert read & set(leaves()) == {("interruption", "phrase")}


# Every value survives.


def reload(config: Config, tmp_path: Path) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(dump_toml(config), encoding="utf-8")
    return load_config(path)


SETTINGS = [
    "objective.no_positive_resampling=false",
    "objective.no_positive_resampling=0.5",
    "objective.advantage_norm=none",
    "objective.loss=dapo",
    "objective.loss=reinforce",
    "task.options={min_digits=3, word='zwölf \"Ü\"', list=[1, 2], nested={a=true}}",
    "training.lr=5e-7",
    "training.eps=1e-15",
    "training.betas=[0.0, 0.999]",
    "rollout.temperature=1",
    "rollout.interruption.phrase='\\n</think>\\t\"'",
    "rollout.interruption.enabled=false",
    "model.name='/a path/with = and # signs'",
    "seed=9223372036854775807",
]


def test_the_defaults_survive_writing_and_reading(tmp_path: Path) -> None:
    assert reload(Config(), tmp_path) == Config()


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_survives_writing_and_reading(tmp_path: Path, setting: str) -> None:
    config = load_config(None, (setting,))
    assert config != Config() or setting == "rollout.temperature=1"
    assert reload(config, tmp_path) == config


@settings(max_examples=40, deadline=None)
@given(
    lr=st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False),
    phrase=st.text(alphabet=st.characters(codec="utf-8"), max_size=30),
    threshold=st.none() | st.floats(0, 1, exclude_min=True),
)
def test_any_value_survives_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, lr: float, phrase: str, threshold: float | None
) -> None:
    config = Config.model_validate(
        {
            "training": {"lr": lr},
            "rollout": {"interruption": {"phrase": phrase}},
            "objective": {"no_positive_resampling": threshold},
        }
    )
    assert reload(config, tmp_path_factory.mktemp("config")) == config


def test_every_key_is_written_out() -> None:
    text = dump_toml(Config())
    for _, key in leaves():
        assert re.search(rf"^({key} =|\[.*\b{key}\])", text, re.MULTILINE), f"{key} is missing"


def test_settings_are_laid_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("seed = 3\n[training]\nsteps = 5\nlr = 0.1\n")
    config = load_config(path, ("training.steps=6", "training.steps=7", " pipeline . k = 2 "))
    assert (config.seed, config.training.steps, config.training.lr, config.pipeline.k) == (3, 7, 0.1, 2)


def test_a_bare_word_is_text() -> None:
    assert load_config(None, ("model.name=/some/folder",)).model.name == "/some/folder"


def test_the_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config().seed = 1  # type: ignore[misc]
    assert all(issubclass(model, Group) for _, model in groups())


# Every mistake is explained: what, where, and what it should be.

MISTAKES = [
    ("trainning.steps=3", r"unknown configuration key trainning in --set; known keys here: seed, model, task"),
    ("training.step=3", r"unknown configuration key training\.step in --set; known keys here: steps, lr"),
    ("rollout.interruption.budget=3", r"key rollout\.interruption\.budget in --set; .*min_tokens"),
    ("training.steps=many", r"training\.steps in --set: .*valid integer, got 'many' - Optimiser steps"),
    ("training.steps=1.5", r"training\.steps .*valid integer, got 1\.5"),
    ("training.steps=true", r"training\.steps .*valid integer, got True"),
    ("training.steps='20'", r"training\.steps .*valid integer, got '20'"),
    ("training.steps=", r"training\.steps .*valid integer, got ''"),
    ("training.steps=0", r"training\.steps .*greater than or equal to 1, got 0"),
    ("training.lr=-1", r"training\.lr .*greater than 0, got -1"),
    ("training.lr=inf", r"training\.lr .*finite number"),
    ("training.lr=nan", r"training\.lr .*finite number|training\.lr .*greater than 0"),
    ("training.betas=[0.9]", r"training\.betas\.1 .*Field required.*Two AdamW betas"),
    ("training.betas=[0.9, 1.0]", r"training\.betas\.1 .*less than 1, got 1\.0.*Two AdamW betas"),
    ("training=3", r"training in --set is a group; set one of its keys: steps, lr"),
    ("training.steps.more=3", r"training\.steps in --set: .*valid integer"),
    ("model.dtype=float8", r"model\.dtype .*'float32', 'bfloat16' or 'float16', got 'float8'"),
    ("objective.loss=ppo", r"objective\.loss .*'cispo'"),
    ("objective.no_positive_resampling=true", r"write a pass rate in \(0, 1\], or false"),
    ("objective.no_positive_resampling=0", r"no_positive_resampling .*greater than 0"),
    ("rollout.engine=fast", r"rollout\.engine .*'torch'"),
    ("rollout.group_size=1", r"rollout\.group_size .*greater than or equal to 2"),
    ("rollout.temperature=0", r"rollout\.temperature .*greater than 0"),
    ("rollout.interruption.min_tokens=99", r"min_tokens \(99\) must not be above max_tokens \(\d+\)"),
    ("rollout.interruption.enabled=maybe", r"rollout\.interruption\.enabled .*valid boolean"),
    ("pipeline.k=-1", r"pipeline\.k .*greater than or equal to 0"),
    ("seed=-1", r"seed .*greater than or equal to 0"),
    ("seed=99999999999999999999", r"seed .*less than 9223372036854775808"),
    ("task.options=3", r"task\.options .*valid dictionary"),
    ("runtime.generator_device=0", r"runtime\.generator_device .*valid string, got 0"),
    ("steps", r"--set 'steps': write it as group\.key=value, for example"),
    ("=3", r"write it as group\.key=value"),
    (".steps=3", r"write it as group\.key=value"),
    ("training.=3", r"write it as group\.key=value"),
]


@pytest.mark.parametrize(("setting", "message"), MISTAKES)
def test_a_mistake_in_a_setting_is_explained(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_config(None, (setting,))
    assert "\n" not in str(caught.value)


def test_a_value_is_no_group() -> None:
    with pytest.raises(UserError, match="steps is a value, not a group"):
        load_config(None, ("training.steps=3", "training.steps.more=3"))


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[training]\nstep = 3\nlr = 0.1\n")
    with pytest.raises(UserError, match=re.escape(f"unknown configuration key training.step in {path};")):
        load_config(path, ("training.lr=0.2",))


def test_further_mistakes_are_counted() -> None:
    with pytest.raises(UserError, match=r"\(and 2 more\)$"):
        load_config(None, ("training.steps=0", "pipeline.k=-1", "seed=-1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot read configuration .*: No such file"),
        (b"[training\n", r"is not valid TOML: .*line 1"),
        (b"\xff\xfe", r"is not valid TOML: .*utf-8"),
        (b"seed = 1\nseed = 2\n", r"is not valid TOML: .*overwrite"),
    ],
)
def test_a_file_that_cannot_be_read_is_explained(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_config(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory; give --config a TOML file"):
        load_config(tmp_path)
