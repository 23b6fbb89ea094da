from __future__ import annotations

import json

import numpy as np
import pytest

from scalerl_mini.runtime.control import Control
from scalerl_mini.runtime.header import PAGE, attach_with_header, create_with_header
from scalerl_mini.runtime.rollout_buffer import BufferShape, RolloutBuffer
from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel


@pytest.mark.parametrize("padding", [0, 1, PAGE - 100, 3 * PAGE])
def test_fields_and_data_come_back_and_data_begins_at_a_page(prefix: str, padding: int) -> None:
    fields = {"names": ["a", "ä"], "size": 3, "padding": "x" * padding}
    segment, data = create_with_header(prefix + ".a", "thing", fields, 1000, None)
    assert data.shape == (1000,)
    assert not data.any()
    assert data.__array_interface__["data"][0] % PAGE == 0
    data[:] = np.arange(1000) % 256
    attached, same, read = attach_with_header(segment.path, "thing")
    assert read == fields
    assert np.array_equal(same, data)
    assert (len(attached.array) - len(same)) % PAGE == 0


def test_what_is_no_segment_of_ours_is_refused(prefix: str) -> None:
    segment = Segment.create(prefix + ".a", 5000)
    with pytest.raises(ValueError, match="not a scalerl-mini segment"):
        attach_with_header(segment.path, "thing")


def test_headers_are_plain_json(prefix: str) -> None:
    """Nothing but raw numbers and JSON lies in shared memory, so a segment cannot run code in who attaches it."""
    made = [
        Control.create(prefix + ".control", ["trainer"]).path,
        RolloutBuffer.create(prefix + ".rollouts", BufferShape(1, 1, 1, 1)).path,
        WeightChannel.create(prefix + ".weights", [TensorSpec("a", "float32", (1,), 4)]).path,
    ]
    kinds = []
    for path in made:
        content = path.read_bytes()
        length = int.from_bytes(content[8:16], "little")
        kinds.append(json.loads(content[16 : 16 + length])["kind"])
    assert kinds == ["control", "rollout-buffer", "weight-channel"]
