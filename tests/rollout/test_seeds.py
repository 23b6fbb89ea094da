"""Seeds against SplitMix64 written in plain Python integers, and sanity of the numbers that come out."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl_mini.seeds import derive_seed, uniform

WORD = st.integers(0, 2**64 - 1)


def splitmix64(seed: int, count: int) -> int:
    """The `count`-th output (from 0) of SplitMix64 with this seed, by its own sequential definition."""
    state, mixed = seed, 0
    for _ in range(count + 1):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % 2**64
        mixed ^= mixed >> 31
    return mixed


def draw(seed: int, counter: int) -> float:
    return float(uniform(np.array([seed], np.uint64), np.array([counter]))[0])


def test_published_values() -> None:
    """The first outputs of SplitMix64 with seed 1234567, as printed with the reference C code."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix64(1234567, n) for n in range(4)] == published
    assert [draw(1234567, n) for n in range(4)] == [(value >> 11) / 2**53 for value in published]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(WORD, st.integers(0, 300))
def test_uniform_is_splitmix64_at_any_counter(seed: int, counter: int) -> None:
    assert draw(seed, counter) == (splitmix64(seed, counter) >> 11) / 2**53


def test_a_vector_of_pairs_is_drawn_pair_by_pair() -> None:
    seeds, counters = np.array([1, 2**64 - 1, 3], np.uint64), np.array([0, 5, 9], np.int64)
    expected = [draw(int(seed), int(counter)) for seed, counter in zip(seeds, counters, strict=True)]
    assert uniform(seeds, counters).tolist() == expected


def test_tokens_of_one_seed_are_uniform_and_uncorrelated() -> None:
    """200,000 draws: mean, variance, a 100-bin chi-square (99 degrees of freedom: 149 is the 99.9 % point), and the
    correlation of neighbours, of one seed and across neighbouring seeds; all at about four standard errors."""
    size = 200_000
    by_counter = uniform(np.full(size, 42, np.uint64), np.arange(size))
    by_seed = uniform(np.arange(size, dtype=np.uint64), np.zeros(size, np.int64))
    for numbers in (by_counter, by_seed):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        assert abs(numbers.mean() - 0.5) < 4 / np.sqrt(12 * size)
        assert abs(numbers.var() - 1 / 12) < 4 / np.sqrt(180 * size)
        counts = np.histogram(numbers, 100, (0, 1))[0]
        assert ((counts - size / 100) ** 2 / (size / 100)).sum() < 149
        for distance in (1, 2, 64):
            assert abs(np.corrcoef(numbers[:-distance], numbers[distance:])[0, 1]) < 4 / np.sqrt(size)


def test_derived_seeds_are_distinct_and_fixed() -> None:
    parts = itertools.product(range(3), ("train", "held-out"), range(20), range(5), range(8))
    seeds = [derive_seed(*part) for part in parts]
    assert len(set(seeds)) == len(seeds) == 3 * 2 * 20 * 5 * 8
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_the_order_and_the_borders_of_the_parts_count() -> None:
    distinct = [
        (1, 23),
        (12, 3),
        (123,),
        (23, 1),
        ("1", 23),
        (1, "23"),
        (1, 2, 3),
        (),
        (0,),
        (0, 0),
        ("a", "b"),
        ("ab",),
    ]
    assert len({derive_seed(*parts) for parts in distinct}) == len(distinct)
    assert derive_seed(0, "epoch", 0) == derive_seed(0, "epoch", 0)


def test_neighbouring_run_seeds_give_unrelated_completions() -> None:
    first, second = (
        uniform(
            np.array([derive_seed(run, "train", i, 0, 0) for i in range(5000)], np.uint64), np.zeros(5000, np.int64)
        )
        for run in (0, 1)
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(5000)
