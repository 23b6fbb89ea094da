from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.command import Launched
from tests.forked import Ancestor

Launch = Callable[..., Launched]


@pytest.fixture(scope="session")
def ancestor() -> Iterator[Ancestor]:
    with Ancestor() as ancestor:
        yield ancestor


@pytest.fixture
def launch(ancestor: Ancestor, tmp_path: Path) -> Iterator[Launch]:
    """Starts `scalerl-mini train` with the arguments and settings of `Launched`; who still runs at the end is killed."""
    launched: list[Launched] = []

    def start(*arguments: str, settings: tuple[str, ...] = ()) -> Launched:
        console = tmp_path / f"launch-{len(launched)}.console"
        launched.append(Launched(*arguments, settings=settings, console=console, ancestor=ancestor))
        return launched[-1]

    yield start
    for run in launched:
        run.process.kill()
