"""Log-probabilities of the head, forward and backward: chunks against full logits. Peak memory and CPU time, one thread.

    python -m tests.bench.bench_head [--short] [--json FILE]

Each side runs in a child of its own; its peak is the growth of the largest resident size over what the inputs take.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import Any

import torch

from scalerl_mini.policy.head import token_logprobs
from tests.bench.harness import Ratio, main

HIDDEN = 64


def full_logits(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The plain way: [N, V] logits, kept for the backward pass."""
    return (hidden @ weight.T).log_softmax(-1).gather(1, targets[:, None])[:, 0]


def chunked(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return token_logprobs(hidden, weight, None, targets)[0]


def run(way: Any, tokens: int, vocabulary: int, answer: Any) -> None:
    """In a child: (peak bytes, CPU seconds) of one forward and backward pass."""
    torch.set_num_threads(1)
    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    weight = torch.randn(vocabulary, HIDDEN, requires_grad=True)
    targets = torch.randint(vocabulary, (tokens,))
    way(hidden[:8], weight[:128], targets[:8] % 128).sum().backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    way(hidden, weight, targets).sum().backward()
    spent = time.process_time() - start
    answer.put(((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, spent))


def child(way: Any, tokens: int, vocabulary: int) -> tuple[int, float]:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=run, args=(way, tokens, vocabulary, answer))
    process.start()
    found = answer.get(timeout=240)
    process.join()
    return found


def measure(short: bool) -> list[Ratio]:
    tokens, vocabulary = (1024, 150_000) if short else (8192, 150_000)
    (our_bytes, our_s), (full_bytes, full_s) = (
        child(chunked, tokens, vocabulary),
        child(full_logits, tokens, vocabulary),
    )
    detail = f"{tokens} tokens: {our_bytes / 2**20:.0f} MiB, {our_s:.1f} s"
    detail += f"; full {full_bytes / 2**20:.0f} MiB, {full_s:.1f} s"
    return [
        Ratio("head peak memory / full logits", our_bytes / full_bytes, 1 / 8, False, detail),
        Ratio("head time / full logits", our_s / full_s, 1.1, False, detail),
    ]


if __name__ == "__main__":
    main(measure, __doc__)
