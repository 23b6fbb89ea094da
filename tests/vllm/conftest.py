"""What needs a real vLLM on the CPU: `make test-vllm` runs it in an environment of its own, `make test` skips it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("vllm") is not None:
        return
    skip = pytest.mark.skip(reason="vLLM is not installed here; make test-vllm runs these tests")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)
