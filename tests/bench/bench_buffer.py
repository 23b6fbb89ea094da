"""The rollout buffer against queues: CPU time to hand over groups of 16 completions of 1k tokens.

    python -m tests.bench.bench_buffer [--short] [--json FILE]

Each way writes a group whole and copies it out whole, both ends in one process: what is measured is what the way itself
costs (locks, pickles, pipes, copies, a queue's feeder thread), not how a busy machine wakes a second process. The ring has
the 80 slots of the default job, so that it lies outside the processor's caches; the bare copies go through such a ring too.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch.multiprocessing

from scalerl_mini.runtime.gate import Ticket
from scalerl_mini.runtime.rollout_buffer import BufferShape, RolloutBuffer
from tests.bench.harness import Ratio, main

SHAPE = BufferShape(80, 16, 64, 1024)
FIELDS = ("tokens", "logprobs", "versions", "mask")


def group() -> dict[str, np.ndarray]:
    record = np.zeros(1, SHAPE.record)[0]
    return {name: np.ones_like(record[name]) for name in FIELDS}


def copy(source: Any, target: Any) -> None:
    for name in FIELDS:
        target[name][:] = source[name]


def cost(hand_over: Callable[[int], None], groups: int) -> float:
    """CPU seconds a group, once every slot has been used."""
    for number in range(SHAPE.capacity):
        hand_over(number)
    start = time.process_time()
    for number in range(SHAPE.capacity, SHAPE.capacity + groups):
        hand_over(number)
    return (time.process_time() - start) / groups


def measure(short: bool) -> list[Ratio]:
    groups = 400 if short else 2000
    source, target = group(), group()
    size = sum(array.nbytes for array in source.values())
    buffer = RolloutBuffer.create(f"bench-{os.getpid()}", SHAPE)
    ring = [group() for _ in range(SHAPE.capacity)]
    queues = multiprocessing.Queue(), torch.multiprocessing.Queue()

    def through_buffer(number: int) -> None:
        buffer.issue(Ticket(number, 0), 0, 0)
        record = buffer.claim(0, 0)
        copy(source, record)
        buffer.commit(number)
        copy(buffer.view(number), target)
        buffer.free([number])

    def through_queue(_: int) -> None:
        queues[0].put(source)
        copy(queues[0].get(), target)

    def through_torch(_: int) -> None:
        queues[1].put({name: torch.from_numpy(array.copy()) for name, array in source.items()})
        copy(queues[1].get(), target)

    def two_copies(number: int) -> None:
        copy(source, ring[number % len(ring)])
        copy(ring[number % len(ring)], target)

    try:
        ways = (through_buffer, through_queue, through_torch, two_copies)
        ours, plain, shared, copies = (cost(way, groups) for way in ways)
    finally:
        buffer.close()
        buffer.unlink()
    detail = f"{size / 2**10:.0f} KiB: {1e6 * ours:.0f} us; Queue {1e6 * plain:.0f}, torch {1e6 * shared:.0f}"
    detail += f", two copies {1e6 * copies:.0f}"
    return [
        Ratio("buffer / multiprocessing.Queue", plain / ours, 10, True, detail),
        Ratio("buffer / torch.multiprocessing", shared / ours, 10, True, detail),
        Ratio("buffer, share of memcpy bandwidth", copies / ours, 0.6, True, detail),
    ]


if __name__ == "__main__":
    main(measure, __doc__)
