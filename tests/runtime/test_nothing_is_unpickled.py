"""Invariant 10: weights are safetensors, everything else is JSON, TOML or CSV; nothing on disk can run code.

The source of both packages is read as syntax trees. multiprocessing pickles the arguments of a child through a pipe
between parent and child, which is not a file and is not found here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
CALLS = {"torch.load", "torch.save", "load_pickle", "read_pickle", "to_pickle", "eval", "exec"}
FLAGS = {"allow_pickle", "trust_remote_code"}


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _faults(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield f"from {node.module} import"
        elif isinstance(node, ast.Call):
            yield from _call_faults(node)


def _call_faults(call: ast.Call) -> Iterator[str]:
    name, keywords = _name(call), {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if name in CALLS or name.rpartition(".")[2] in CALLS - {"eval", "exec"}:
        yield name
    yield from (flag for flag in FLAGS if keywords.get(flag, "False") != "False")
    if name.startswith("AutoModel") and name.endswith("from_pretrained") and keywords.get("use_safetensors") != "True":
        yield f"{name} without use_safetensors=True"


@pytest.mark.parametrize("package", ["scalerl_mini", "simulate"])
def test_no_source_file_reads_or_writes_pickles(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files or package == "simulate"
    faults = [f"{file.relative_to(ROOT)}: {fault}" for file in files for fault in _faults(file.read_text())]
    assert faults == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from joblib import load",
        "import torch\ntorch.load('x')",
        "torch.save(x, 'x')",
        "np.load('x', allow_pickle=True)",
        "pandas.read_pickle('x')",
        "frame.to_pickle('x')",
        "AutoModelForCausalLM.from_pretrained('x')",
        "AutoModelForCausalLM.from_pretrained('x', use_safetensors=None)",
        "AutoTokenizer.from_pretrained('x', trust_remote_code=True)",
        "eval('1')",
    ],
)
def test_the_check_bites(source: str) -> None:
    assert list(_faults(source))


@pytest.mark.parametrize(
    "source", ["model.eval()", "json.load(file)", "np.load('x')", "safetensors.torch.load_file('x')"]
)
def test_the_check_leaves_good_code_alone(source: str) -> None:
    assert list(_faults(source)) == []
