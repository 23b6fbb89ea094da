"""The precision of the head is a setting of each side: generator and trainer get theirs, not the other's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.training.loop import Loop


@pytest.mark.parametrize(
    ("setting", "generator", "trainer"),
    [("both", True, True), ("generator", True, False), ("trainer", False, True), ("none", False, False)],
)
def test_each_side_has_its_own(make_loop: Callable[..., Loop], setting: str, generator: bool, trainer: bool) -> None:
    loop = make_loop("model.dtype=bfloat16", f"model.fp32_head={setting}")
    assert loop.generators[0].policy.fp32_head is generator
    assert loop.trainer.policy.fp32_head is trainer
