"""Any tree, setting or text as a configuration: a `Config` that survives being written, or one helpful line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalerl_mini.config import Config, dump_toml, load_config
from scalerl_mini.config_groups import Group
from scalerl_mini.errors import UserError
from tests.cli.refusals import call, contents

LONGEST_LINE = 1000
GROUPS = {name: field.annotation for name, field in Config.model_fields.items() if name != "seed"}
fuzz = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = ["float32", "both", "cispo", "dapo", "prompt", "ppo", "arithmetic", "cpu", "builtin:tiny-adder", "</think>"]
numbers = st.integers(-3, 300) | st.integers(-(2**63), 2**63 - 1) | st.floats()
leaves = st.booleans() | numbers | st.text(max_size=20) | st.dates() | st.sampled_from(WORDS)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def group_tree(group: type[Group]) -> st.SearchStrategy[dict[str, Any]]:
    """Trees with mostly the right keys, and values that are mostly wrong."""
    fields = {}
    for key, field in group.model_fields.items():
        inner = field.annotation
        fields[key] = (group_tree(inner) | values) if isinstance(inner, type) and issubclass(inner, Group) else values
    known = st.dictionaries(st.sampled_from(sorted(fields)), st.none(), max_size=2).flatmap(
        lambda keys: st.fixed_dictionaries({key: fields[key] for key in keys})
    )
    unknown = st.dictionaries(st.text(max_size=6), values, max_size=1)
    return st.builds(lambda right, wrong: wrong | right, known, known | unknown)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration file to write to."""
    return tmp_path_factory.mktemp("fuzz") / "c.toml"


def sound_or_explained(file: Path, *arguments: Any) -> bool:
    """Whether it is a configuration; asserts that it can be written and read again, or that the refusal is one line."""
    try:
        config = load_config(*arguments)
    except UserError as error:
        line = " ".join(str(error).split())
        assert 20 < len(line) < LONGEST_LINE
        return False
    file.write_text(dump_toml(config), encoding="utf-8")
    assert load_config(file) == config
    return True


@fuzz
@given(tree=group_tree(Config))
def test_trees(file: Path, tree: dict[str, Any]) -> None:
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    sound_or_explained(file, file)


keys = st.sampled_from([f"{name}.{key}" for name, group in GROUPS.items() for key in group.model_fields])
words = st.sampled_from([*"=.[]{}'\"#\n\\ \x00ü", "true", "nan", "1", "1e999", "seed"])
noise = st.lists(words, max_size=12).map("".join) | st.text(max_size=30)
fitting = values.map(lambda value: tomli_w.dumps({"v": value}).partition("=")[2].strip())


@fuzz
@given(texts=st.lists(noise | st.builds("{}={}".format, keys | noise, noise | fitting), min_size=1, max_size=3))
def test_settings(file: Path, texts: list[str]) -> None:
    sound_or_explained(file, None, tuple(texts))


@fuzz
@given(text=noise | st.binary(max_size=60) | group_tree(Config).map(lambda tree: tomli_w.dumps(tree)[:-3]))
def test_texts(file: Path, text: str | bytes) -> None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    sound_or_explained(file, file)


COMMANDS = [["train", "--dry-run"], ["fit"], ["compare"], ["recipes"], ["simulate", "validate"], ["ablate"]]
OPTIONS = ["--set", "--seed", "--level", "--out", "--x", "--json", "--n", "-1", "x=1", "nan", "=", "--", ""]
letters = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    command=st.sampled_from(COMMANDS),
    words=st.lists(st.sampled_from(OPTIONS) | st.text(letters, max_size=8), min_size=1, max_size=4),
)
def test_command_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    words: list[str],
) -> None:
    """No exception gets out, a refusal is one line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scalerl_mini.ablation.study.Study.write", lambda self: pytest.fail("a study was written"))
    code = call(*command, *words, *(["--count", "0"] if command[0] == "simulate" else []))
    captured = capsys.readouterr()
    assert code in (0, 1, 2)
    if code:
        assert captured.err.startswith("error: ") or "Usage:" in captured.err
        assert captured.err.count("\n") == 1 or "Usage:" in captured.err
    assert contents(tmp_path) == {}
