"""Publish and load of weights through the channel, against safetensors on the same tmpfs and against two bare copies.

python -m tests.bench.bench_weights [--short] [--json FILE]
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel
from tests.bench.harness import Ratio, main, seconds

TENSORS = 100


def measure(short: bool) -> list[Ratio]:
    nbytes = (64 if short else 512) * 2**20 // TENSORS
    source = {f"layer.{i}": np.random.default_rng(i).integers(0, 256, nbytes, np.uint8) for i in range(TENSORS)}
    middle, target = ({name: np.zeros_like(array) for name, array in source.items()} for _ in range(2))
    channel = WeightChannel.create(
        f"bench-weights-{os.getpid()}", [TensorSpec(name, "uint8", (nbytes,), nbytes) for name in source]
    )
    path, version = Path(f"/dev/shm/bench-weights-{os.getpid()}.safetensors"), iter(range(1000))

    def through_channel() -> None:
        channel.publish(next(version), source)
        channel.read(target)

    def through_safetensors() -> None:
        save_file(source, path)
        for name, array in load_file(path).items():
            target[name][:] = array

    def two_copies() -> None:
        for name in source:
            middle[name][:] = source[name]
        for name in source:
            target[name][:] = middle[name]

    try:
        through_channel(), through_channel()  # both buffers have their pages
        ours, files, copies = seconds(through_channel, through_safetensors, two_copies, repeats=5)
    finally:
        path.unlink(missing_ok=True)
        channel.close()
        channel.unlink()
    detail = f"{nbytes * TENSORS / 2**20:.0f} MiB: {1e3 * ours:.0f} ms"
    detail += f", safetensors {1e3 * files:.0f}, two copies {1e3 * copies:.0f}"
    return [
        Ratio("weights / safetensors on tmpfs", files / ours, 3, True, detail),
        Ratio("weights time / two copies", ours / copies, 1.5, False, detail),
    ]


if __name__ == "__main__":
    main(measure, __doc__)
