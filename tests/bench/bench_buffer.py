"""The rollout buffer against queues: groups of 16 completions of 1k tokens from one process to another.

    python -m tests.bench.bench_buffer [--short] [--json FILE]

A group is written whole and read whole on both sides; a queue pickles (or, torch's, shares) the same arrays.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch.multiprocessing

from scalerl_mini.runtime.gate import Ticket
from scalerl_mini.runtime.rollout_buffer import BufferShape, RolloutBuffer
from tests.bench.harness import Ratio, main, seconds

SHAPE = BufferShape(8, 16, 64, 1024)
FIELDS = ("tokens", "logprobs", "versions", "mask")


def payload() -> dict[str, np.ndarray]:
    record = np.zeros(1, SHAPE.record)[0]
    return {name: np.ones_like(record[name]) for name in FIELDS}


def fill(path: Path, groups: int, go: Any) -> None:
    """The generator's side."""
    buffer, arrays = RolloutBuffer.attach(path), payload()
    go.wait()
    for _ in range(groups):
        while (record := buffer.claim(0, 0)) is None:
            time.sleep(0)
        for name in FIELDS:
            record[name][:] = arrays[name]
        buffer.commit(int(record["sequence"]))


def put(queue: Any, groups: int, go: Any, as_tensors: bool) -> None:
    """A queue's writing side."""
    arrays: dict[str, Any] = payload()
    go.wait()
    for _ in range(groups):
        queue.put({name: torch.from_numpy(array.copy()) if as_tensors else array for name, array in arrays.items()})
    go.clear()
    go.wait()  # torch shares memory of this process: it must live until the reader is done


def through_buffer(groups: int) -> float:
    """Seconds a group."""
    context = multiprocessing.get_context("spawn")
    buffer, go = RolloutBuffer.create(f"bench-{os.getpid()}", SHAPE), context.Event()
    target = {name: np.empty_like(array) for name, array in payload().items()}
    process = context.Process(target=fill, args=(buffer.path, groups, go))
    process.start()
    try:
        time.sleep(2)  # the child has imported what it needs
        for sequence in range(SHAPE.capacity):
            buffer.issue(Ticket(sequence, 0), 0, 0)
        go.set()
        start = time.perf_counter()
        for sequence in range(groups):
            while not buffer.ready([sequence]):
                time.sleep(0)
            record = buffer.view(sequence)
            for name in FIELDS:
                target[name][:] = record[name]
            buffer.free([sequence])
            buffer.issue(Ticket(sequence + SHAPE.capacity, 0), 0, 0)
        return (time.perf_counter() - start) / groups
    finally:
        process.join(60)
        buffer.close()
        buffer.unlink()


def through_queue(groups: int, as_tensors: bool) -> float:
    """Seconds a group."""
    context = torch.multiprocessing.get_context("spawn") if as_tensors else multiprocessing.get_context("spawn")
    queue, go = context.Queue(SHAPE.capacity), context.Event()
    target = {name: np.empty_like(array) for name, array in payload().items()}
    process = context.Process(target=put, args=(queue, groups, go, as_tensors))
    process.start()
    time.sleep(2)
    go.set()
    start = time.perf_counter()
    for _ in range(groups):
        group = queue.get(timeout=60)
        for name in FIELDS:
            target[name][:] = group[name]
    spent = (time.perf_counter() - start) / groups
    while go.is_set():
        time.sleep(0.001)
    go.set()
    process.join(60)
    return spent


def measure(short: bool) -> list[Ratio]:
    groups = 200 if short else 1000
    arrays = payload()
    other = {name: np.empty_like(array) for name, array in arrays.items()}
    size = sum(array.nbytes for array in arrays.values())

    def copy() -> None:
        for name in FIELDS:
            other[name][:] = arrays[name]

    (copy_s,) = seconds(copy, repeats=101)
    ours, plain, shared = through_buffer(groups), through_queue(groups, False), through_queue(groups, True)
    detail = f"{size / 2**10:.0f} KiB: {1e6 * ours:.0f} us; Queue {1e6 * plain:.0f}, torch {1e6 * shared:.0f}"
    detail += f", a copy {1e6 * copy_s:.0f}"
    return [
        Ratio("buffer / multiprocessing.Queue", plain / ours, 10, True, detail),
        Ratio("buffer / torch.multiprocessing", shared / ours, 10, True, detail),
        Ratio(
            "buffer, share of memcpy bandwidth", copy_s / ours, 0.6, True, "one copy in and one out overlap; " + detail
        ),
    ]


if __name__ == "__main__":
    main(measure, __doc__)
