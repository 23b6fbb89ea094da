"""How speed and memory grow: one figure of six, and the numbers behind it.

    python -m tests.bench.growth FIGURE.png [--only NAME]

slots, lengths, groups: the torch engine, tokens a CPU second (slots: the default task's mixed lengths, the
others: equal lengths). training, vocabulary: one forward and backward pass of 8192 tokens cut into sequences of one
length, or scored over a vocabulary, each in a process of its own whose peak memory over its start is shown. pipeline:
whole runs of the default job with 1 or 2 generators and k = 1 to 16, seconds a step.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import ATTENTION_NAME
from scalerl_mini.rollout.engines import Request, TorchEngine
from scalerl_mini.tasks import load_task
from scalerl_mini.training.preflight import resolve_model
from tests.bench import bench_engine, bench_pipeline

TOKENS = 8192
Points = dict[str, list[tuple[float, float]]]  # label of a line: (x, y) of its points


class Endless(Policy):
    """A policy that no token ends."""

    eos_ids = frozenset()  # type: ignore[assignment]


def shipped(kind: type[Policy] = Policy) -> Policy:
    policy = Policy.load(resolve_model("builtin:tiny-adder"))
    return kind(policy.model, policy.tokenizer)


def equal_rate(policy: Policy, prompts: list[tuple[int, ...]], limit: int) -> float:
    """Tokens a second when every prompt has a slot and no completion ends before the limit."""
    engine = TorchEngine(policy, len(prompts), max(map(len, prompts)), limit)
    for number, prompt in enumerate(prompts):
        engine.submit(Request(prompt, number, (number, 0), limit))
    start = time.process_time()
    while engine.running:
        engine.step()
    return len(prompts) * limit / (time.process_time() - start)


def slots() -> Points:
    policy = shipped()
    prompts = [tuple(policy.encode(prompt.text)) for prompt in load_task("arithmetic").train]
    counts = (16, 32, 64, 128, 192, 256, 384)
    best = [max(bench_engine.engine_rate(policy, prompts[: 4 * count], count) for _ in range(2)) for count in counts]
    return {"tokens/s": list(zip(counts, best, strict=True))}


def lengths() -> Points:
    policy = shipped(Endless)
    prompt = tuple(policy.encode("<bos>12+34=<think>"))
    return {"tokens/s, 8 rows": [(limit, equal_rate(policy, [prompt] * 8, limit)) for limit in (128, 512, 2048, 8192)]}


def groups() -> Points:
    policy = shipped(Endless)
    short = tuple(policy.encode("<bos>12+34=<think>"))
    found: Points = {}
    for words in (1, 64):
        rates = []
        for size in (1, 4, 16, 64):
            prompts = [(number % 9 + 3, *(short * words)[1:]) for number in range(64 // size) for _ in range(size)]
            rates.append((size, max(equal_rate(policy, prompts, 64) for _ in range(2))))
        found[f"prompts of {len(short) * words} tokens, 64 rows"] = rates
    return found


def pass_cost(length: int, vocabulary: int, answer: Any) -> None:
    """In a child: (seconds, peak bytes) of one forward and backward pass of TOKENS tokens."""
    torch.set_num_threads(1)
    config = Qwen3Config(vocab_size=vocabulary, hidden_size=96, intermediate_size=256, num_hidden_layers=3,
                         num_attention_heads=3, num_key_value_heads=1, head_dim=32, tie_word_embeddings=True)  # fmt: skip
    policy = Policy(AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME), None)

    def once(count: int, length: int) -> None:
        ids = torch.randint(vocabulary, (count * length,))
        targets = torch.arange(count * length).view(count, length)[:, 1:].flatten()
        policy.score(ids, torch.full((count,), length), targets, 1.0)[0].sum().backward()

    once(1, 16)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    once(TOKENS // length, length)
    spent = time.process_time() - start
    answer.put((spent, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)))


def in_a_child(length: int, vocabulary: int) -> tuple[float, float]:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=pass_cost, args=(length, vocabulary, answer))
    process.start()
    found = answer.get(timeout=300)
    process.join()
    return found


def cost_lines(xs: tuple[int, ...], costs: list[tuple[float, float]]) -> Points:
    return {
        "tokens/s": [(x, TOKENS / spent) for x, (spent, _) in zip(xs, costs, strict=True)],
        "peak, KiB a token": [(x, peak / TOKENS / 1024) for x, (_, peak) in zip(xs, costs, strict=True)],
    }


def training() -> Points:
    xs = (128, 512, 2048, 8192)
    return cost_lines(xs, [in_a_child(length, 24) for length in xs])


def vocabulary() -> Points:
    xs = (24, 1000, 10_000, 50_000, 150_000)
    return cost_lines(xs, [in_a_child(128, size) for size in xs])


def pipeline() -> Points:
    found: Points = {}
    for generators in (1, 2):
        line = []
        for k in (1, 2, 4, 8, 16):
            settings = (f"pipeline.k={k}", f"runtime.generators={generators}")
            line.append((k, bench_pipeline.measure(settings, seed=0, steps=60)["seconds_per_step"]))
        found[f"{generators} generator{'s' * (generators > 1)}, s a step"] = line
    return found


PANELS: dict[str, tuple[Callable[[], Points], str]] = {
    "slots": (slots, "slots"),
    "lengths": (lengths, "tokens of a completion"),
    "groups": (groups, "completions a prompt"),
    "training": (training, "tokens of a sequence, 8192 in all"),
    "vocabulary": (vocabulary, "vocabulary"),
    "pipeline": (pipeline, "k, rollout buffer of (k + 1) x 16 groups"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure")
    parser.add_argument("--only", action="append", choices=PANELS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.4))
    for axis, (name, (measure, label)) in zip(axes.flat, PANELS.items(), strict=True):
        if options.only and name not in options.only:
            continue
        for line, points in measure().items():
            print(f"{name}: {line}: " + ", ".join(f"{x:g}: {y:.4g}" for x, y in points), flush=True)
            axis.plot(*zip(*points, strict=True), "o-", label=line)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log" if "peak, KiB a token" in axis.get_legend_handles_labels()[1] else "linear")
        axis.set_xlabel(label)
        axis.set_title(name)
        axis.legend(fontsize=8)
        if axis.get_yscale() == "linear":
            axis.set_ylim(0)
    figure.tight_layout()
    figure.savefig(options.figure, dpi=90)


if __name__ == "__main__":
    main()
