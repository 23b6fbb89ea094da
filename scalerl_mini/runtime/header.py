"""A segment describes itself: a small JSON header, then data at a page boundary.

Whoever attaches needs only the path; a file that is not what it should be is refused instead of misread.
Raw bytes and JSON only, nothing is ever unpickled from a segment.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from scalerl_mini.runtime.segment import Segment

PAGE = 4096
_MAGIC = b"SCALERL1"
_PREFIX = len(_MAGIC) + 8


def create_with_header(
    name: str, kind: str, fields: dict[str, Any], data_bytes: int, fallback_dir: Path | None
) -> tuple[Segment, np.ndarray]:
    """New segment of `fields` as JSON and `data_bytes` zeroed bytes; returns it and the data, uint8 [data_bytes]."""
    text = json.dumps({"kind": kind, **fields}).encode()
    start = _data_start(len(text))
    segment = Segment.create(name, start + data_bytes, fallback_dir)
    header = _MAGIC + len(text).to_bytes(8, "little") + text
    segment.array[: len(header)] = np.frombuffer(header, dtype=np.uint8)
    return segment, segment.array[start:]


def attach_with_header(path_or_name: Path | str, kind: str) -> tuple[Segment, np.ndarray, dict[str, Any]]:
    """Map an existing segment; returns it, its data and its fields. ValueError when it is not a `kind`."""
    segment = Segment.attach(path_or_name)
    if bytes(segment.array[: len(_MAGIC)]) != _MAGIC:
        raise ValueError(f"{segment.path} is not a scalerl-mini segment")
    length = int.from_bytes(bytes(segment.array[len(_MAGIC) : _PREFIX]), "little")
    fields = json.loads(bytes(segment.array[_PREFIX : _PREFIX + length]))
    if fields.pop("kind") != kind:
        raise ValueError(f"{segment.path} is not a {kind} segment")
    return segment, segment.array[_data_start(length) :], fields


def _data_start(header_bytes: int) -> int:
    return -(-(_PREFIX + header_bytes) // PAGE) * PAGE
