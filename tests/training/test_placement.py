"""Which process goes on which device: judged before the start, with GPUs that only the test has."""

from __future__ import annotations

import pytest

from scalerl_mini.config import Config, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.gpu import Gpu, ask_gpus
from scalerl_mini.training.placement import check_placement, gpu_number
from scalerl_mini.training.run_spec import generator_roles

GIB = 1024**3


def config(generators: str = "cpu", trainer: str = "cpu", count: int = 1) -> Config:
    return load_config(
        None,
        (
            f"runtime.generator_device={generators}",
            f"runtime.trainer_device={trainer}",
            f"runtime.generators={count}",
        ),
    )


def gpus(count: int) -> list[Gpu]:
    return [Gpu("made up", 80 * GIB, 80 * GIB) for _ in range(count)]


@pytest.mark.parametrize(
    ("given", "count", "devices"),
    [
        ("cpu", 1, ["cpu"]),
        ("cpu", 3, ["cpu", "cpu", "cpu"]),
        ("cpu,cpu", 1, ["cpu", "cpu"]),
        ("cpu, cuda:1", 1, ["cpu", "cuda:1"]),
        ("cuda:0,cuda:2", 2, ["cuda:0", "cuda:2"]),
        ("cuda:0", 2, ["cuda:0", "cuda:0"]),
    ],
)
def test_a_device_for_each_generator(given: str, count: int, devices: list[str]) -> None:
    found = config(given, count=count)
    assert list(found.runtime.generator_devices) == devices
    assert len(generator_roles(found)) == len(devices)
    check_placement(found, lambda: gpus(3))


def test_gpus_are_asked_for_only_where_one_is_named() -> None:
    def nobody() -> list[Gpu]:
        raise AssertionError("asked")

    check_placement(config("cpu,cpu"), nobody)
    with pytest.raises(AssertionError, match="asked"):
        check_placement(config("cpu", "cuda"), nobody)


@pytest.mark.parametrize(
    ("generators", "trainer", "message"),
    [
        ("cuda:0,tpu", "cpu", "generator_device = 'tpu' is not a device; write cpu, cuda:0, cuda:1, or several as"),
        ("cpu", "cuda:-1", "trainer_device = 'cuda:-1' is not a device; write cpu, cuda:0, cuda:1$"),
        ("cpu", "cuda:01", "'cuda:01' is not a device"),
        (
            "cuda:1,cuda:2",
            "cuda:0",
            "generator_device = 'cuda:2' is not on this machine; it has cpu and 2 GPUs, cuda:0 to",
        ),
        ("cpu", "cuda:2", "trainer_device = 'cuda:2' is not on this machine"),
    ],
)
def test_no_such_device(generators: str, trainer: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_placement(config(generators, trainer), lambda: gpus(2))


def test_the_number_of_a_gpu() -> None:
    assert [gpu_number(name) for name in ("cuda", "cuda:0", "cuda:12")] == [0, 0, 12]


def test_the_gpus_of_this_machine() -> None:
    """Asked in a process of its own; what it answers here is what torch answers here."""
    import torch

    assert len(ask_gpus()) == torch.cuda.device_count()
