"""What the spawned processes of the runtime tests do; importable, and light to import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np

from scalerl_mini.errors import UserError, WouldComeAgain
from scalerl_mini.runtime.child import die_with_parent
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.rollout_buffer import RolloutBuffer
from scalerl_mini.runtime.segment import Segment
from scalerl_mini.runtime.waiting import Stopped, wait_until
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel

WEIGHTS = [TensorSpec(f"layer.{index}", "uint8", (size,), size) for index, size in enumerate((100_000, 3, 70_001))]


def constant_weights(version: int) -> dict[str, np.ndarray]:
    """A policy version whose every byte is the same, so that any mixture shows."""
    return {spec.name: np.full(spec.nbytes, version * 37 % 251, np.uint8) for spec in WEIGHTS}


def read_whole(channel: WeightChannel, into: dict[str, np.ndarray]) -> int:
    """Read and require that all bytes are of the version that is reported."""
    version, _ = channel.read(into)
    for name, array in into.items():
        assert (array == version * 37 % 251).all(), f"version {version}: {name} is a mixture of {np.unique(array)}"
    return version


def publish_for_ever(path: Path) -> None:
    channel = WeightChannel.attach(path)
    while True:
        channel.publish(channel.version + 1, constant_weights(channel.version + 1))


def read_for_ever(path: Path, reads_path: Path, index: int) -> None:
    channel, into = WeightChannel.attach(path), constant_weights(0)
    reads, last = Segment.attach(reads_path).array.view(np.int64), -1
    while True:
        version = read_whole(channel, into)
        assert version >= last
        last = version
        reads[index] += 1


def generate(role: str, owner: int, control_path: Path, buffer_path: Path, channel_path: Path, seed: int) -> None:
    """A generator as lazy as the rules allow: it loads weights only when it gets no group, or by chance."""
    control, buffer = Control.attach(control_path), RolloutBuffer.attach(buffer_path)
    channel, into, random = WeightChannel.attach(channel_path), constant_weights(0), Random(seed)
    loaded = -1
    while True:
        record = buffer.claim(owner, loaded)
        if record is None:
            wait_until(lambda: channel.version >= 0, "v0", control=control, role=role, deadline_s=60, who=["trainer"])
            loaded = read_whole(channel, into)
            time.sleep(0.0005)
            continue
        control.beat(role, Stage.GENERATING)
        for position in range(record["tokens"].shape[1]):
            if random.random() < 0.02:
                loaded = read_whole(channel, into)
            record["tokens"][:, position] = record["prompt_index"] + position
            record["versions"][:, position] = loaded
            time.sleep(random.choice([0, 0, 0.0005]))
        buffer.commit(int(record["sequence"]))


# Roles for the supervisor.


def work_until_stopped(role: str, control_path: Path) -> None:
    """A well-behaved role."""
    control = Control.attach(control_path)
    print(f"{role} at work", flush=True)
    control.beat(role, Stage.GENERATING)
    wait_until(lambda: False, "nothing", control=control, role=role, deadline_s=600, who=[])


def end_well(role: str) -> None:
    print(f"{role} is done")


def fail(role: str) -> None:
    try:
        raise KeyError("an earlier, handled fault")
    except KeyError:
        print("Traceback (most recent call last):\n  handled", file=sys.stderr, flush=True)
    raise RuntimeError(f"{role} has no idea what to do")


def write_to_the_descriptors() -> None:
    os.write(1, b"from C, to stdout\n")
    os.write(2, b"from C, to stderr\n")
    subprocess.run([sys.executable, "-c", "print('from a program')"], check=True)


def exit_with(code: int) -> None:
    sys.exit(code)


def crash_hard() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(role: str, control_path: Path) -> None:
    """Silent in the middle of its work."""
    Control.attach(control_path).beat(role, Stage.TRAINING)
    time.sleep(600)


def refuse_to_stop(role: str, control_path: Path) -> None:
    """Alive, but deaf to the stop flag and to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control = Control.attach(control_path)
    while True:
        control.beat(role, Stage.GENERATING)
        time.sleep(0.005)


def ignore_the_flag(role: str, control_path: Path) -> None:
    """Ends by SIGTERM only."""
    control = Control.attach(control_path)
    while True:
        control.beat(role, Stage.GENERATING)
        time.sleep(0.005)


def end_well_the_second_time(role: str, control_path: Path, mark: Path) -> None:
    """Hangs in its first life."""
    first = not mark.exists()
    mark.touch()
    if first:
        hang(role, control_path)


def lock_and_hang(role: str, control_path: Path, segment_path: Path) -> None:
    """Takes the lock and never gives it back; its last sign of life is later than that of role one, which waits for it."""
    control, segment = Control.attach(control_path), Segment.attach(segment_path)
    with segment.lock():
        segment.array[0] = 1
        wait_until(
            lambda: control.stage("one") == Stage.TRAINING, "one", control=control, role=role, deadline_s=60, who=[]
        )
        time.sleep(0.4)
        control.beat(role, Stage.GENERATING)
        time.sleep(600)


def wait_for_the_lock(role: str, control_path: Path, segment_path: Path) -> None:
    """Silent only because another has the lock."""
    control, segment = Control.attach(control_path), Segment.attach(segment_path)
    wait_until(lambda: bool(segment.array[0]), "the other", control=control, role=role, deadline_s=60, who=[])
    control.beat(role, Stage.TRAINING)
    with segment.lock():
        control.beat(role, Stage.WAITING)
    work_until_stopped(role, control_path)


def refuse() -> None:
    raise UserError("this needs more room")


def find_out() -> None:
    raise WouldComeAgain("the two sides disagree")


def stop_with(reason: str) -> None:
    raise Stopped(reason)


def orphan_at_birth() -> None:
    """A process whose parent is said to be another: as if the parent had died before the child could tell."""
    die_with_parent(os.getpid())
    os._exit(0)
