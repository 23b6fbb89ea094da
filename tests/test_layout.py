"""The shape of the repository: which package may know which, who may import torch, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("scalerl_mini", "simulate")
MOST_LINES = 300

# part of the code -> the parts it may import, at the top of a module or inside a function (DESIGN: dependencies point
# one way). Everything may import `errors`.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "seeds": set(),
    "recipes": set(),
    "model_folder": set(),
    "chat": set(),
    "gpu": set(),
    "config_groups": set(),
    "config": {"config_groups", "contradictions", "recipes"},
    "contradictions": {"config"},  # the type only
    "tasks": set(),
    "objective": set(),
    "scaling": set(),
    "runtime": set(),
    "policy": {"chat", "model_folder"},
    "rollout": {"config", "config_groups", "seeds", "policy", "runtime", "tasks"},
    "training": {
        "chat",
        "config",
        "config_groups",
        "gpu",
        "model_folder",
        "objective",
        "policy",
        "rollout",
        "runtime",
        "tasks",
        "version",
        "scaling",
    },
    "warmstart": {"tasks"},
    "evaluating": {
        "config",
        "config_groups",
        "gpu",
        "model_folder",
        "policy",
        "rollout",
        "runtime",
        "tasks",
        "training",
    },
    "ablation": {"config", "recipes", "scaling", "tasks", "training"},
    "simulate": {"scaling", "runtime.gate"},
    "cli": {"ablation", "config", "evaluating", "recipes", "runtime", "scaling", "simulate", "training", "version"},
}
# The one place where training looks at the law: the launcher draws the curve of its own run after an evaluation.
ONLY_IN = {("training", "scaling"): {"scalerl_mini/training/watch.py"}}
ENTRY_POINTS = {"scalerl_mini/__main__.py", "simulate/__main__.py"}
NO_TORCH = (
    "recipes",
    "model_folder",
    "chat",
    "config",
    "config_groups",
    "tasks",
    "scaling",
    "runtime",
    "errors",
    "seeds",
    "simulate",
)
TORCH = {"torch", "transformers", "safetensors"}


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def part_of(module: str) -> str | None:
    """ "scalerl_mini.training.launcher" -> "training"; None for what is not ours."""
    names = module.split(".")
    if names[0] == "simulate":
        return "simulate"
    if names[0] != "scalerl_mini":
        return None
    return "version" if len(names) == 1 else names[1]


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module named in an import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield str(node.module)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def violations(path: Path, tree: ast.AST) -> list[str]:
    """Imports of a file that go against the arrows."""
    name, here = str(path.relative_to(ROOT)), part_of(module_of(path))
    found = []
    for module in imports(tree):
        there = part_of(module)
        if there in (None, here, "errors") or here == "version":
            continue
        allowed = ARROWS[str(here)]
        narrow = any(module == f"scalerl_mini.{one}" for one in allowed if "." in one)
        exclusive = ONLY_IN.get((str(here), str(there)))
        if not (there in allowed or narrow) or (exclusive and name not in exclusive):
            found.append(f"{name} imports {module}")
    return found


def test_dependencies_point_one_way() -> None:
    found = [
        line
        for path in sources()
        if str(path.relative_to(ROOT)) not in ENTRY_POINTS
        for line in violations(path, ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("scalerl_mini/objective/losses.py", "from scalerl_mini.config import Config"),
        ("scalerl_mini/scaling/fit.py", "import scalerl_mini.training.batch"),
        ("scalerl_mini/runtime/gate.py", "def f():\n    from scalerl_mini.policy import Policy"),
        ("simulate/curves.py", "from scalerl_mini.runtime.supervisor import Role"),
        ("scalerl_mini/training/trainer.py", "from scalerl_mini.scaling import fit"),
        ("scalerl_mini/training/trainer.py", "from scalerl_mini.cli.train import command"),
    ],
)
def test_a_wrong_arrow_is_found(file: str, source: str) -> None:
    assert violations(ROOT / file, ast.parse(source))


def test_every_part_has_its_arrows() -> None:
    parts = {part_of(module_of(path)) for path in sources()}
    assert parts - {"version", "__main__"} <= set(ARROWS)
    assert "torch" in {
        part for path in sources() if "/policy/" in str(path) for part in imports(ast.parse(path.read_text()))
    }


def test_parts_without_torch_do_not_name_it() -> None:
    found = [
        (module_of(path), module)
        for path in sources()
        if part_of(module_of(path)) in NO_TORCH
        for module in imports(ast.parse(path.read_text()))
        if module.split(".")[0] in TORCH
    ]
    assert found == []


LIGHT = [
    "scalerl_mini.config",
    "scalerl_mini.tasks",
    "scalerl_mini.scaling",
    "scalerl_mini.runtime",
    "scalerl_mini.training.launcher",
    "scalerl_mini.training.watch",
    "scalerl_mini.training.resuming",
    "scalerl_mini.evaluating.questions",
    "scalerl_mini.evaluating.report",
    "simulate",
]


def test_light_modules_import_no_torch() -> None:
    """The launcher must not: it would hold a gigabyte and a device context for nothing."""
    check = f"import sys, {', '.join(LIGHT)}\nprint(sorted({TORCH | {'matplotlib'}!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("path", [*sources(), *sorted((ROOT / "tests").rglob("*.py"))], ids=lambda path: path.stem)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_every_module_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_nothing_names_this_machine() -> None:
    """No source depends on the folder it was written in."""
    for path in sources():
        for word in ("/work/", "/root/", "shared/DESIGN"):
            assert word not in path.read_text(), f"{path} names {word}"
