from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from scalerl_mini.runtime import weight_channel
from scalerl_mini.runtime.header import PAGE
from scalerl_mini.runtime.weight_channel import ALIGNMENT, TensorSpec, TornRead, WeightChannel, checksum
from tests.runtime.support import Crash, at_line, crash

MANIFEST = [
    TensorSpec("embedding", "bfloat16", (10, 3), 60),
    TensorSpec("layer.0.weight", "float32", (700, 8), 22400),
    TensorSpec("scale", "float32", (), 4),
]


def _arrays(value: int) -> dict[str, np.ndarray]:
    """A policy version whose every byte is the same constant."""
    return {spec.name: np.full(spec.nbytes, value % 251, np.uint8) for spec in MANIFEST}


def _empty() -> dict[str, np.ndarray]:
    return {spec.name: np.full(spec.nbytes, 255, np.uint8) for spec in MANIFEST}


def _assert_whole(into: dict[str, np.ndarray], value: int) -> None:
    for name, array in into.items():
        assert (array == value % 251).all(), f"{name} is a mixture"


@pytest.fixture
def channel(prefix: str) -> WeightChannel:
    return WeightChannel.create(prefix + ".weights", MANIFEST)


def test_every_version_arrives_whole_with_its_checksum(channel: WeightChannel) -> None:
    reader, into = WeightChannel.attach(channel.path), _empty()
    assert reader.manifest == MANIFEST
    assert reader.version == channel.version == -1
    for version in (0, 1, 2, 5, 9):
        sent = channel.publish(version, _arrays(version))
        assert reader.read(into) == (version, sent)
        assert checksum(into[spec.name] for spec in MANIFEST) == sent
        assert reader.version == version
        _assert_whole(into, version)


def test_the_bytes_are_kept_exactly(channel: WeightChannel) -> None:
    random = np.random.default_rng(0)
    sent = {spec.name: random.integers(0, 256, spec.nbytes, np.uint8) for spec in MANIFEST}
    channel.publish(0, sent)
    channel.read(into := _empty())
    assert all(np.array_equal(into[name], sent[name]) for name in sent)


def test_tensors_are_aligned_and_do_not_overlap(channel: WeightChannel) -> None:
    spans = []
    for buffer in channel._buffers:
        for spec in MANIFEST:
            address = buffer[spec.name].__array_interface__["data"][0]
            assert address % ALIGNMENT == 0
            spans.append((address, address + spec.nbytes))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_an_empty_channel_has_nothing_to_read(channel: WeightChannel) -> None:
    with pytest.raises(RuntimeError, match="no version is published yet"):
        channel.read(_empty())


@pytest.mark.parametrize("version", [-1, 0, 2, 3])
def test_versions_must_increase(channel: WeightChannel, version: int) -> None:
    channel.publish(3, _arrays(3))
    with pytest.raises(ValueError, match="not newer than 3"):
        channel.publish(version, _arrays(9))
    channel.read(into := _empty())
    _assert_whole(into, 3)


@pytest.mark.parametrize("use", ["publish", "read"])
def test_arrays_that_do_not_fit_the_manifest_are_refused(channel: WeightChannel, use: str) -> None:
    channel.publish(0, _arrays(0))
    missing, surplus, small, typed = _arrays(1), _arrays(1), _arrays(1), _arrays(1)
    del missing["scale"]
    surplus["other"] = np.zeros(1, np.uint8)
    small["scale"] = np.zeros(3, np.uint8)
    typed["scale"] = np.zeros(4, np.int8)
    messages = [(missing, "scale"), (surplus, "other"), (small, "scale must be uint8"), (typed, "got int8")]
    for arrays, message in messages:
        with pytest.raises(ValueError, match=message):
            channel.publish(1, arrays) if use == "publish" else channel.read(arrays)
    channel.read(into := _empty())
    _assert_whole(into, 0)


def test_a_name_twice_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="twice"):
        WeightChannel.create(prefix + ".weights", [MANIFEST[0], MANIFEST[0]])


@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_writer_that_dies_at_any_line_leaves_the_last_version_and_the_next_writer_goes_on(
    prefix: str, published: int
) -> None:
    line, finished, versions = 0, False, []
    while not finished:
        line += 1
        writer = WeightChannel.create(f"{prefix}.{line}", MANIFEST)
        for version in range(published):
            writer.publish(version, _arrays(version))
        with contextlib.suppress(Crash), at_line(WeightChannel.publish, line, crash) as seen:
            writer.publish(published, _arrays(published))
        finished = len(seen) < line
        reader, into = WeightChannel.attach(writer.path), _empty()
        versions.append(reader.version)
        if reader.version >= 0:
            assert reader.read(into)[0] == reader.version
            _assert_whole(into, reader.version)
        next_writer = WeightChannel.attach(writer.path)
        for version in range(reader.version + 1, reader.version + 4):
            next_writer.publish(version, _arrays(version + 7))
            assert reader.read(into)[0] == version
            _assert_whole(into, version + 7)
        writer.unlink()
    assert versions == sorted(versions)
    assert {*versions[:8], versions[-1]} == {published - 1, published}


def _overtake_everywhere(prefix: str, publishes: int, half: bool) -> None:
    """Publish (and half-publish, as a writer in mid-write) before every line of the reader's copy."""
    line, finished = 0, False
    while not finished:
        line += 1
        channel = WeightChannel.create(f"{prefix}.{line}", MANIFEST)
        channel.publish(0, _arrays(0))

        def overtake(channel: WeightChannel = channel) -> None:
            for version in range(1, publishes + 1):
                channel.publish(version, _arrays(version))
            if half:
                channel._words["writes"][1 - publishes % 2] += 1
                channel._buffers[1 - publishes % 2][MANIFEST[1].name][:11_000] = 250

        into = _empty()
        with at_line(WeightChannel._try_read, line, overtake) as seen:
            version, _ = channel.read(into)
        finished = len(seen) < line
        _assert_whole(into, version)
        channel.unlink()
    assert line > 12


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("publishes", [1, 2, 3])
def test_a_reader_overtaken_at_any_line_still_returns_a_whole_version(prefix: str, publishes: int, half: bool) -> None:
    _overtake_everywhere(prefix, publishes, half)


@pytest.mark.parametrize("publishes", [1, 2, 3])
def test_the_counters_alone_also_catch_every_torn_copy(
    prefix: str, publishes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_channel, "checksum", lambda arrays: 0)
    _overtake_everywhere(prefix, publishes, half=True)


def test_the_checksum_alone_also_catches_a_torn_copy(channel: WeightChannel) -> None:
    channel.publish(0, _arrays(0))
    channel._buffers[int(channel._words["latest"]) & 1]["layer.0.weight"][11_000] = 1
    with pytest.raises(TornRead, match=r"no whole version could be read for 0\.05 s"):
        channel.read(_empty(), deadline_s=0.05)


@pytest.mark.parametrize(
    "change",
    [
        lambda one, two: one.__setitem__(0, 1),
        lambda one, two: one.__setitem__(-1, 1),
        lambda one, two: two.__setitem__(3, 9),
        lambda one, two: one.__setitem__(slice(None), np.roll(one, 8192)),
        lambda one, two: (one.__setitem__(0, 2), two.__setitem__(0, 5)),
    ],
    ids=["first", "last", "second-array", "rows-swapped", "exchanged"],
)
def test_the_checksum_sees(change: Callable[[np.ndarray, np.ndarray], None]) -> None:
    one, two = np.zeros(30_000, np.uint8), np.zeros(10, np.uint8)
    one[:8192], one[0], two[0] = 3, 5, 2
    before = checksum([one, two])
    assert before == checksum([one.copy(), two.copy()])
    assert 0 <= before < 2**63
    change(one, two)
    assert checksum([one, two]) != before


@pytest.mark.parametrize("size", [0, 1, 7, 8, 8191, 8192, 8193])
def test_the_checksum_takes_any_size(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    assert checksum([array]) == checksum([array])
    if size:
        array[-1] ^= 1
        assert checksum([array]) != checksum([np.arange(size, dtype=np.uint8)])


def test_the_control_words_fit_before_the_first_buffer() -> None:
    assert weight_channel._WORDS.itemsize <= PAGE
