"""Seeds that depend on what is sampled, never on when or where.

Every completion has a seed of its own, hashed from the run's seed and its place in the data (prompt, epoch, sample), and
every token takes its uniform number from that seed and its index alone. So the number of generators, the slot a
completion runs in and the order in which completions finish change nothing.
"""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def derive_seed(*parts: int | str) -> int:
    """A 64-bit seed from any sequence of integers and words; different sequences give independent seeds."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(seeds: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """One number in [0, 1) for each (seed, counter) pair: uint64 [S], integer [S] -> float64 [S].

    SplitMix64 (Steele, Lea and Flood 2014) at an arbitrary counter: no state, so any token can be drawn on its own.
    """
    with np.errstate(over="ignore"):
        z = seeds + (counters.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
