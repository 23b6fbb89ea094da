"""Useful tokens a second of the torch engine against its slots, default model and task: a figure.

    python -m tests.bench.growth_slots FIGURE.png

Four completions a slot; the better of two runs.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.tasks import load_task
from scalerl_mini.training.preflight import resolve_model
from tests.bench.bench_engine import engine_rate

SLOTS = (16, 32, 64, 128, 192, 256, 384)


def main(figure: str) -> None:
    torch.set_num_threads(1)
    policy = Policy.load(resolve_model("builtin:tiny-adder"))
    prompts = [tuple(policy.encode(prompt.text)) for prompt in load_task("arithmetic").train]
    rates = [max(engine_rate(policy, prompts[: 4 * slots], slots) for _ in range(2)) for slots in SLOTS]
    for slots, rate in zip(SLOTS, rates, strict=True):
        print(f"{slots} slots: {rate:.0f} tokens/s")
    plt.figure(figsize=(5, 3.2))
    plt.plot(SLOTS, rates, "o-")
    plt.xscale("log", base=2)
    plt.ylim(0)
    plt.xlabel("slots")
    plt.ylabel("useful tokens/s, one thread")
    plt.tight_layout()
    plt.savefig(figure, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
