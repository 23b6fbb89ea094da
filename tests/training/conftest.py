from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scalerl_mini.training import processes
from tests.fakes import LONGEST, FakeEngine, uniform_model
from tests.training.loop import Loop


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a uniform policy."""
    return uniform_model(tmp_path_factory.mktemp("uniform"))


@pytest.fixture
def make_loop(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Loop]]:
    """Makes a `Loop` from settings; its shared memory is removed at the end."""
    monkeypatch.setattr(processes, "build_engine", lambda config, policy, *_: FakeEngine(policy, config.slots, LONGEST))
    loops: list[Loop] = []

    def make(*settings: str, folder: str = "run", resume: bool = False) -> Loop:
        loops.append(Loop(tmp_path / folder, model, settings, resume=resume))
        return loops[-1]

    yield make
    for loop in loops:
        loop.close()
