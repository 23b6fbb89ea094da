"""Policies shared by all tests. A test that changes weights takes a `fresh_` one of its own."""

from __future__ import annotations

import signal

import pytest
import torch

from scalerl_mini.policy import Policy
from tests.policy.tiny import Tiny, tiny_policy

torch.set_num_threads(1)
# A suite in the background of a script (`make test &`) is started with SIGINT ignored, and so would be what it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def qwen3() -> Policy:
    """Qwen3, grouped-query attention, head of its own. Not to be changed."""
    return tiny_policy(Tiny("qwen3"))


@pytest.fixture(scope="session")
def llama() -> Policy:
    """Llama, grouped-query attention, head tied to the embedding. Not to be changed."""
    return tiny_policy(Tiny("llama", tied=True))


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def fresh_qwen3(request: pytest.FixtureRequest) -> Policy:
    """A Qwen3 that the test may train."""
    return tiny_policy(Tiny("qwen3", tied=request.param))
