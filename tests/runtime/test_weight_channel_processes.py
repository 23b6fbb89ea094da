"""Invariant 2 with real processes: thousands of publishes, writer and readers killed in the middle of them."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest

from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.weight_channel import WeightChannel
from tests.runtime.processes import WEIGHTS, constant_weights, publish_for_ever, read_for_ever, read_whole
from tests.runtime.support import eventually, spawned


@pytest.mark.slow
def test_no_reader_ever_sees_a_mixture_though_everybody_is_killed(prefix: str) -> None:
    channel = WeightChannel.create(prefix + ".weights", WEIGHTS)
    counts = Segment.create(prefix + ".reads", 24)
    reads = counts.array.view(np.int64)
    into = constant_weights(0)
    published = killed_in_mid_write = 0
    with contextlib.ExitStack() as stack:
        survivor = stack.enter_context(spawned(read_for_ever, channel.path, counts.path, 0))
        channel.publish(0, constant_weights(0))
        for round_number in range(5):
            victim = stack.enter_context(spawned(read_for_ever, channel.path, counts.path, 1))
            writer = stack.enter_context(spawned(publish_for_ever, channel.path))
            start, read_before = channel.version, int(reads[1])
            eventually(lambda: channel.version > start + 500, "the writer publishes")  # noqa: B023
            eventually(lambda: int(reads[1]) > read_before + 20, "the reader reads")  # noqa: B023
            for _ in range(20):
                read_whole(channel, into)
            time.sleep(0.001 * round_number)
            victim.kill()
            writer.kill()
            writer.join()
            killed_in_mid_write += int((channel._words["writes"] % 2).any())
            assert read_whole(channel, into) == channel.version
            published = channel.version
            assert survivor.is_alive()
        before = int(reads[0])
        eventually(lambda: int(reads[0]) > before + 20, "the reader that was never killed goes on")
        assert survivor.is_alive()
    assert published > 2500
    assert killed_in_mid_write > 0, "no kill fell into a write, the test shows nothing"
    channel.publish(published + 1, constant_weights(published + 1))
    assert read_whole(channel, into) == published + 1
