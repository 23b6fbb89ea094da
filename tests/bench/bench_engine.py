"""The torch engine against `generate` of transformers: useful tokens a CPU second, one thread.

    python -m tests.bench.bench_engine [--short] [--json FILE]

Default model and task. Mixed lengths: both stop at the end token; the engine refills its rows, `generate` pads each batch
to its longest. With a queue of 4 completions a row the engine's last rows decode nearly alone; with 16 that tail is
short, as in a training run, where the queue never empties. Equal lengths: neither stops before the limit. Tokens after
an end count for nobody. Stall: one load of new weights between two decode steps, in decode steps.
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import copy

import torch
from transformers import GenerationConfig

from scalerl_mini.config import Config
from scalerl_mini.policy import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.engines import Request, TorchEngine
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel
from scalerl_mini.tasks import load_task
from scalerl_mini.training.preflight import resolve_model
from tests.bench.harness import Ratio, main, seconds

LIMIT = 51


class Endless(Policy):
    """A policy that no token ends."""

    eos_ids = frozenset()  # type: ignore[assignment]


def engine_rate(policy: Policy, prompts: list[tuple[int, ...]], rows: int) -> float:
    engine = TorchEngine(policy, rows, max(map(len, prompts)), LIMIT)
    for number, prompt in enumerate(prompts):
        engine.submit(Request(prompt, number, (number, 0), LIMIT))
    start, tokens = time.process_time(), 0
    while engine.running:
        tokens += sum(len(done.tokens) for done in engine.step())
    return tokens / (time.process_time() - start)


@torch.inference_mode()
def generate_rate(model: Any, prompts: list[tuple[int, ...]], rows: int, eos: int | None, pad: int) -> float:
    options = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=LIMIT,
                               eos_token_id=eos, pad_token_id=pad)  # fmt: skip
    start, tokens = time.process_time(), 0
    for first in range(0, len(prompts), rows):
        batch = prompts[first : first + rows]
        width = max(map(len, batch))
        ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in batch])
        seen = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in batch])
        made = model.generate(ids, attention_mask=seen, generation_config=options)[:, width:]
        for row in made.tolist():
            tokens += row.index(eos) + 1 if eos in row else len(row)
    return tokens / (time.process_time() - start)


def stall(policy: Policy, prompts: list[tuple[int, ...]], rows: int) -> tuple[float, float]:
    """Seconds of one load of published weights and of one decode step with all rows running."""
    weights = WeightBytes(policy)
    channel = WeightChannel.create(
        f"bench-stall-{os.getpid()}",
        [TensorSpec(name, "uint8", view.shape, view.nbytes) for name, view in weights.views.items()],
    )
    engine = TorchEngine(Endless(policy.model, policy.tokenizer), rows, max(map(len, prompts)), 4 * LIMIT)
    for number, prompt in enumerate(prompts[:rows]):
        engine.submit(Request(prompt, number, (number, 0), 4 * LIMIT))
    engine.step()

    def load() -> None:
        channel.read(weights.views)
        weights.push(1)

    try:
        channel.publish(1, weights.pull())
        load_s, step_s = seconds(load, engine.step, repeats=41)
    finally:
        channel.close()
        channel.unlink()
    return load_s, step_s


def measure(short: bool) -> list[Ratio]:
    torch.set_num_threads(1)
    policy = Policy.load(resolve_model(Config().model.name))
    endless = Endless(policy.model, policy.tokenizer)
    plain = copy.deepcopy(policy.model)
    plain.set_attn_implementation("sdpa")
    (eos,), pad = policy.eos_ids, 0
    texts = [prompt.text for prompt in load_task("arithmetic").train]
    ratios = []
    prompts = [tuple(policy.encode(text)) for text in texts]
    for rows in (64, 256):
        for kind, ours, end, a_row, goal in (
            ("mixed lengths, long queue", policy, eos, 16, 2.0),
            ("mixed lengths, short queue", policy, eos, 4, 2.0),
            ("equal lengths", endless, None, 4, 1.1),
        ):
            asked = [prompts[number % len(prompts)] for number in range(rows * (a_row // 2 if short else a_row))]
            pairs = [
                (engine_rate(ours, asked, rows), generate_rate(plain, asked, rows, end, pad))
                for _ in range(1 if short else 3)
            ]
            mine, theirs = sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]
            detail = f"{len(asked)} completions: {mine:.0f} tokens/s, generate {theirs:.0f}"
            ratios.append(Ratio(f"engine / generate, {kind}, {rows} rows", mine / theirs, goal, True, detail))
    load_s, step_s = stall(policy, prompts, 192)
    detail = f"192 rows: load {1e3 * load_s:.2f} ms, step {1e3 * step_s:.2f} ms"
    ratios.append(Ratio("stall of an update, decode steps", load_s / step_s, 2, False, detail))
    return ratios


if __name__ == "__main__":
    main(measure, __doc__)
