"""The short version of `tests.soak.memory`: the measuring works and sees a leak; a hundred steps do not grow by much."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.memory import MIB, MemoryWatcher, measure


@pytest.mark.slow
def test_no_process_grows(tmp_path: Path) -> None:
    """Too short for a slope, long enough for a leak of a batch or a set of weights each step."""
    grown = measure(tmp_path, 100)
    assert set(grown) == {"launcher", "trainer", "generator-0", "generator-1", "shared memory"}
    for role, line in grown.items():
        assert line.slope * 0.1 < 8, f"{role}: {line}"


@pytest.mark.parametrize(("leak", "flat"), [(0, True), (1024, True), (16 * 1024, False)])
def test_a_leak_shows(tmp_path: Path, leak: int, flat: bool) -> None:
    watcher = MemoryWatcher(tmp_path)
    for step in range(1000):
        watcher.seen["trainer"].append((step, 300 * MIB + leak * step + 10_000 * (step % 7)))
    assert watcher.growth(1000)["trainer"].flat is flat
