"""Ten thousand publishes against readers that never stop, writers and readers killed all the time: is a mixture ever seen?

    python -m tests.soak.torn_weights --publishes 10000 --seed 1

Each version writes one constant into every byte of three tensors, so a mixture of two versions cannot hide. A reader that
sees one, or sees time go backwards, dies of an assertion, which ends the soak.
"""

from __future__ import annotations

import argparse
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from scalerl_mini.runtime import run_prefix, unlink_all
from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.weight_channel import WeightChannel
from tests.runtime.processes import WEIGHTS, constant_weights, publish_for_ever, read_for_ever, read_whole
from tests.runtime.support import eventually, spawned

READERS = 2  # index 0 is never killed, index 1 again and again


@dataclass
class Seen:
    """What happened: whole reads of the one that lived and of those that died, kills of writers and of readers, and how
    many of the writers died in the middle of a publish."""

    publishes: int = 0
    reads: int = 0
    reads_of_victims: int = 0
    writers_killed: int = 0
    readers_killed: int = 0
    in_mid_publish: int = 0


def soak(publishes: int, rounds: int, seed: int) -> Seen:
    """At least `publishes` publishes by `rounds` writers, each killed at a random moment. AssertionError on a mixture."""
    prefix, chance, seen = run_prefix(), random.Random(seed), Seen()
    try:
        channel = WeightChannel.create(prefix + ".weights", WEIGHTS)
        counts = Segment.create(prefix + ".reads", 8 * READERS)
        reads = counts.array.view(np.int64)
        channel.publish(0, constant_weights(0))
        with ExitStack() as stack:
            survivor = stack.enter_context(spawned(read_for_ever, channel.path, counts.path, 0))
            eventually(lambda: reads[0] > 0, "the first read")
            for number in range(rounds):
                _round(channel, reads, publishes * (number + 1) // rounds, chance, seen)
                assert survivor.is_alive(), "the reader saw a mixture"
            before = int(reads[0])
            eventually(lambda: int(reads[0]) > before + 20, "the reader that was never killed goes on")
        seen.publishes, seen.reads, seen.reads_of_victims = channel.version, int(reads[0]), int(reads[1])
    finally:
        unlink_all(prefix)
    return seen


def _round(channel: WeightChannel, reads: np.ndarray, until: int, chance: random.Random, seen: Seen) -> None:
    """A writer and a reader, from their start to their violent end."""
    into, before = constant_weights(0), int(reads[1])
    with (
        spawned(read_for_ever, channel.path, channel.path.with_suffix(".reads"), 1) as victim,
        spawned(publish_for_ever, channel.path) as writer,
    ):
        eventually(lambda: channel.version >= until, "the writer publishes")
        eventually(lambda: int(reads[1]) > before, "the reader reads")
        assert victim.is_alive(), "the reader saw a mixture"
        time.sleep(chance.random() * 0.01)
        for process in chance.sample([victim, writer], 2):
            process.kill()
            process.join()
            time.sleep(chance.random() * 0.003)
    seen.writers_killed += 1
    seen.readers_killed += 1
    seen.in_mid_publish += int((channel._words["writes"] % 2).any())
    assert read_whole(channel, into) == channel.version


def main() -> None:
    """Print what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--publishes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    print(soak(**vars(parser.parse_args())), "\nno mixture seen")


if __name__ == "__main__":
    main()
