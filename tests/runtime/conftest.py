from __future__ import annotations

from collections.abc import Iterator

import pytest

from scalerl_mini.runtime import segment, segment_names


@pytest.fixture
def prefix() -> Iterator[str]:
    """A run prefix whose segments are removed after the test."""
    name = segment_names.run_prefix()
    yield name
    segment_names.unlink_all(name)
    assert not list(segment.SHM_DIR.glob(name + "*"))
