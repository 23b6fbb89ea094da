"""Tokens a second on a pretrained model with a large vocabulary: the torch engine, `generate` of transformers, and vLLM.

    python -m tests.bench.bench_smollm2 MODEL [--rows 32] [--tokens 64]

MODEL: the folder that examples/smollm2_cpu/make_model.py writes. One thread, fp32, temperature 1, no end tokens; every side
decodes the same rows side by side, prompts included, after a short round of other prompts to warm up (vLLM would find the
same ones in its cache). Tokens a CPU second, as the machine may be shared; the share of the wall time that was CPU time
tells how much. vLLM is left out where it is not installed.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import copy
import importlib.util
from collections.abc import Callable

import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Engine, Request, TorchEngine, VllmEngine
from scalerl_mini.rollout.engines.vllm_core import VllmCore
from tests.smollm2 import QUESTIONS

Prompts = list[tuple[int, ...]]
Decode = Callable[[Prompts, int], int]  # (prompts, tokens a prompt) -> tokens made
WARM_UP = 4


def main() -> None:
    """Print a line for each side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    policy = Policy.load(options.model, chat_template=True)
    policy.model.generation_config.eos_token_id = []
    every = [policy.prompt_ids(question) for question in QUESTIONS]
    prompts, others = every[: options.rows], every[options.rows :]
    longest, count = max(map(len, every)), options.tokens
    measure("torch engine", rows_of(TorchEngine(policy, len(prompts), longest, count)), prompts, others, count)
    measure("generate", generate(policy), prompts, others, count)
    if importlib.util.find_spec("vllm"):
        core = VllmCore(policy, len(prompts), longest + count, 1.0)
        measure("vllm", rows_of(VllmEngine(core, policy, len(prompts), longest, count)), prompts, others, count)


def measure(name: str, decode: Decode, prompts: Prompts, others: Prompts, count: int) -> None:
    """Time `decode` of `prompts`, after a few tokens of `others`."""
    decode(others, WARM_UP)
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = decode(prompts, count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:<14}{tokens / cpu:6.1f} tokens a CPU second, CPU share of the wall time {cpu / wall:.2f}", flush=True)


def rows_of(engine: Engine) -> Decode:
    def decode(prompts: Prompts, count: int) -> int:
        for number, prompt in enumerate(prompts):
            engine.submit(Request(prompt, number, (number, 0), count))
        tokens = 0
        while engine.running:
            tokens += sum(len(done.tokens) for done in engine.step())
        return tokens

    return decode


def generate(policy: Policy) -> Decode:
    model, pad = copy.deepcopy(policy.model), policy.tokenizer.pad_token_id
    model.set_attn_implementation("sdpa")
    model.generation_config.eos_token_id = None

    @torch.inference_mode()
    def decode(prompts: Prompts, count: int) -> int:
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        options = {"do_sample": True, "top_k": 0, "max_new_tokens": count, "pad_token_id": pad}
        made = model.generate(input_ids=ids, attention_mask=mask, **options)
        return (made.shape[1] - width) * len(prompts)

    return decode


if __name__ == "__main__":
    main()
