"""Unreachable cycles go at each evaluation, and only in a process that has set aside what its start made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from scalerl_mini.training import garbage
from tests.training.loop import Loop


class Cycle:
    """Refers to itself, so only a collection ends it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def by_hand() -> Iterator[None]:
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("by_hand")
def test_a_cycle_ends_once_something_is_set_aside() -> None:
    before = weakref.ref(Cycle())
    garbage.collect()
    assert before(), "a full collection in a process with all of torch to go through"
    garbage.set_aside()
    assert not before()
    after = weakref.ref(Cycle())
    garbage.collect()
    assert not after()


def test_the_trainer_collects_at_each_evaluation(
    make_loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, calls = make_loop(), []
    monkeypatch.setattr(garbage, "collect", lambda: calls.append(loop.trainer.policy.version))
    loop.run()
    assert calls == [0, 3, 6]
