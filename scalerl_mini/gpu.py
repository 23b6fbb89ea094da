"""The calls that only a GPU can answer, in one file: everything around them runs, and is tested, on a CPU.

    python -m scalerl_mini.gpu      prints the GPUs of this machine as JSON

The launcher asks in that way, in a process that ends at once: it never imports torch, and a process that has once talked to
a GPU holds a few hundred MiB of it until it ends. Nothing here has been run on a GPU yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from scalerl_mini.errors import UserError

ASK_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Gpu:
    """One GPU. peers: numbers of the GPUs whose memory it can address."""

    name: str
    free_bytes: int
    total_bytes: int
    peers: tuple[int, ...] = ()


def ask_gpus() -> list[Gpu]:
    """The GPUs of this machine, in torch's order; empty when there is none. UserError when nobody answers."""
    command = [sys.executable, "-m", "scalerl_mini.gpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ASK_TIMEOUT_S)
    except (subprocess.SubprocessError, OSError) as error:
        raise UserError(f"cannot ask for the GPUs of this machine ({error}); try: {' '.join(command)}") from None
    return [Gpu(**{**row, "peers": tuple(row["peers"])}) for row in json.loads(done.stdout.splitlines()[-1])]


def found_gpus() -> list[Gpu]:
    """`ask_gpus`, in this process."""
    import torch

    numbers = range(torch.cuda.device_count())
    return [
        Gpu(
            torch.cuda.get_device_name(number),
            *torch.cuda.mem_get_info(number),
            tuple(other for other in numbers if other != number and torch.cuda.can_device_access_peer(number, other)),
        )
        for number in numbers
    ]


def use(device: str) -> None:
    """Make `device` the one of this process, so that nothing of it lands on the first GPU by default."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.device(device))


if __name__ == "__main__":
    print(json.dumps([asdict(gpu) for gpu in found_gpus()]))
