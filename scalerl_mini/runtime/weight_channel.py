"""The weight channel: the newest policy version, whole, from the trainer to every generator through shared memory.

Two buffers. The writer fills the one that is not current, then makes it current by storing one 64-bit word that holds
version and buffer together. Each buffer has a counter that is odd while it is being written (a "sequence lock"), so a
reader that was overtaken by two publishes notices and starts again. Nobody ever waits for anybody:

    a writer killed in mid-write   leaves the other buffer current; the next writer goes on in the same place
    a reader killed in mid-read    held nothing

A reader also verifies a checksum over what it copied, against the one the writer took from its source. On processors
with weak memory order (ARM) the counters alone would not prove that a copy is whole; there the checksum decides.
Bytes only: what a tensor means is the business of whoever publishes and loads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from scalerl_mini.runtime.header import PAGE, attach_with_header, create_with_header
from scalerl_mini.runtime.segment import Segment

ALIGNMENT = 64
_ROW = 1024
_ODD = 0x9E3779B97F4A7C15
_MASK = 2**63 - 1
_WORDS = np.dtype(
    [("latest", np.int64), ("writes", np.int64, (2,)), ("version", np.int64, (2,)), ("checksum", np.int64, (2,))]
)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of the manifest: its name, dtype as text, shape, and size in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class TornRead(RuntimeError):
    """No whole version could be read before the deadline."""


def checksum(arrays: Iterable[np.ndarray]) -> int:
    """63-bit sum of flat uint8 arrays that depends on the order of the arrays and of their 8 KiB rows; about 5 GB/s.

    It is against torn and mixed copies, not against malice.
    """
    total = 0
    for index, array in enumerate(arrays):
        whole = len(array) // (8 * _ROW) * (8 * _ROW)
        tail = np.zeros(8 * _ROW, np.uint8)
        tail[: len(array) - whole] = array[whole:]
        rows = array[:whole].view(np.uint64).reshape(-1, _ROW).sum(axis=1)
        rows = np.append(rows, tail.view(np.uint64).sum())
        weights = 2 * np.arange(len(rows), dtype=np.uint64) + np.uint64(1)
        total += (2 * index + 1) * _ODD * int((rows * weights).sum())
    return total & _MASK


class WeightChannel:
    """One writer, any number of readers. Arrays are flat uint8, one for each name of the manifest, exact in size."""

    def __init__(self, segment: Segment, data: np.ndarray, manifest: list[TensorSpec]) -> None:
        self.path = segment.path
        self.manifest = manifest
        self._segment = segment
        self._words = data[: _WORDS.itemsize].view(_WORDS)[0]
        offsets, size = _layout(manifest)
        self._buffers = [
            {spec.name: data[base + offset :][: spec.nbytes] for spec, offset in zip(manifest, offsets, strict=True)}
            for base in (PAGE, PAGE + size)
        ]

    @classmethod
    def create(cls, name: str, manifest: list[TensorSpec], fallback_dir: Path | None = None) -> WeightChannel:
        """New channel with room for two versions, nothing published; UserError when there is no room for it."""
        if len({spec.name for spec in manifest}) != len(manifest):
            raise ValueError("the manifest names a tensor twice")
        fields = {"manifest": [asdict(spec) for spec in manifest]}
        size = PAGE + 2 * _layout(manifest)[1]
        segment, data = create_with_header(name, "weight-channel", fields, size, fallback_dir)
        channel = cls(segment, data, manifest)
        channel._words["latest"] = -1
        return channel

    @classmethod
    def attach(cls, path_or_name: Path | str) -> WeightChannel:
        """Map an existing channel; the manifest is read from its header."""
        segment, data, fields = attach_with_header(path_or_name, "weight-channel")
        manifest = [TensorSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in fields["manifest"]]
        return cls(segment, data, manifest)

    @property
    def version(self) -> int:
        """Latest whole policy version; -1 before the first."""
        return int(self._words["latest"]) >> 1

    def publish(self, version: int, arrays: Mapping[str, np.ndarray]) -> int:
        """Make `version` the latest; returns its checksum. ValueError when it is not newer or an array does not fit."""
        if version <= self.version:
            raise ValueError(f"version {version} is not newer than {self.version}, which is published")
        sources = self._checked(arrays)
        target = 1 - (int(self._words["latest"]) & 1)
        words = self._words
        # To the next odd number, also from an odd one that a killed writer left behind.
        words["writes"][target] += 1 + int(words["writes"][target]) % 2
        for spec in self.manifest:
            self._buffers[target][spec.name][:] = sources[spec.name]
        words["version"][target] = version
        words["checksum"][target] = checksum(sources.values())
        words["writes"][target] += 1
        words["latest"] = version * 2 + target
        return int(words["checksum"][target])

    def read(self, into: Mapping[str, np.ndarray], deadline_s: float = 60.0) -> tuple[int, int]:
        """Copy the latest version into `into`; returns (version, checksum) of what was copied.

        A torn copy is thrown away and taken again. RuntimeError before the first publish; TornRead when nothing whole
        was seen for `deadline_s` (then `into` holds rubbish).
        """
        targets = self._checked(into)
        start = time.monotonic()
        while True:
            if (whole := self._try_read(targets)) is not None:
                return whole
            if time.monotonic() - start > deadline_s:
                raise TornRead(f"{self.path}: no whole version could be read for {deadline_s:g} s")

    def close(self) -> None:
        """Let go of the mapping in this process."""
        self._buffers = []
        self._words = np.zeros((), _WORDS)[()]
        self._segment.close()

    def unlink(self) -> None:
        """Remove the segment's name; the creator's duty."""
        self._segment.unlink()

    def _try_read(self, targets: dict[str, np.ndarray]) -> tuple[int, int] | None:
        """One attempt; None when the copy was torn."""
        words = self._words
        latest = int(words["latest"])
        if latest < 0:
            raise RuntimeError(f"{self.path}: no version is published yet")
        version, index = latest >> 1, latest & 1
        writes = int(words["writes"][index])
        if writes % 2:
            return None
        for name, target in targets.items():
            target[:] = self._buffers[index][name]
        expected = int(words["checksum"][index])
        if words["writes"][index] != writes or words["version"][index] != version:
            return None
        return (version, expected) if checksum(targets.values()) == expected else None

    def _checked(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays in manifest order, each known to be flat uint8 of the right size."""
        if arrays.keys() != {spec.name for spec in self.manifest}:
            differing = sorted(arrays.keys() ^ {spec.name for spec in self.manifest})
            raise ValueError(f"names differ from the manifest: {differing}")
        for spec in self.manifest:
            array = arrays[spec.name]
            if array.dtype != np.uint8 or array.shape != (spec.nbytes,):
                raise ValueError(f"{spec.name} must be uint8 [{spec.nbytes}], got {array.dtype} {list(array.shape)}")
        return {spec.name: arrays[spec.name] for spec in self.manifest}


def _layout(manifest: list[TensorSpec]) -> tuple[list[int], int]:
    """Offset of each tensor within one buffer, 64-byte aligned, and the size of the buffer."""
    offsets, size = [], 0
    for spec in manifest:
        offsets.append(size)
        size += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, size
