"""Which process goes on which device, judged before anything starts. No torch here.

Devices are `cpu` and `cuda:N`; several generators name theirs separated by commas (`cuda:0,cuda:2`, `cpu,cpu`), and any
two processes may share one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from scalerl_mini.config import Config
from scalerl_mini.errors import UserError
from scalerl_mini.gpu import Gpu

_DEVICE = re.compile(r"cpu|cuda(:(0|[1-9]\d{0,3}))?")


def check_placement(config: Config, ask_gpus: Callable[[], list[Gpu]]) -> None:
    """Raise UserError for a device that does not exist, in one line. The GPUs are asked for only where one is named."""
    runtime = config.runtime
    named = [("runtime.generator_device", name) for name in runtime.generator_devices]
    named.append(("runtime.trainer_device", runtime.trainer_device))
    for key, name in named:
        if not _DEVICE.fullmatch(name):
            several = ", or several as cuda:0,cuda:2" if key == "runtime.generator_device" else ""
            raise UserError(f"{key} = {name!r} is not a device; write cpu, cuda:0, cuda:1{several}")
    on_gpus = [(key, name) for key, name in named if name != "cpu"]
    gpus = ask_gpus() if on_gpus else []
    for key, name in on_gpus:
        if gpu_number(name) >= len(gpus):
            has = f"it has cpu and {len(gpus)} GPUs" + (f", cuda:0 to cuda:{len(gpus) - 1}" if gpus else "")
            raise UserError(f"{key} = {name!r} is not on this machine; {has}")


def gpu_number(device: str) -> int:
    """2 for cuda:2; cuda is cuda:0."""
    return int(device.partition(":")[2] or 0)
