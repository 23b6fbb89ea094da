"""Sampled against rescored log-probabilities for each precision of the body and each side of the fp32 head.

    python -m tests.bench.bench_precision [MODEL] [DEVICE]

Nothing is trained: the engine samples completions, the same weights score them, and what is left is rounding. It is what
the start-up self-check of a run reports, here for all settings side by side; MODEL is builtin:tiny-adder by default.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from scalerl_mini.config import Config
from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Finished, Request
from scalerl_mini.rollout.sampling import build_engine
from scalerl_mini.tasks import load_task
from scalerl_mini.training.preflight import resolve_model

COMPLETIONS = 96
DTYPES = ("float32", "bfloat16", "float16")
HEADS = {"both": (True, True), "generator": (True, False), "trainer": (False, True), "none": (False, False)}


def sample(policy: Policy, prompts: list[tuple[int, ...]]) -> list[Finished]:
    rollout = Config().rollout
    engine = build_engine(rollout, policy, max(map(len, prompts)))
    for number, prompt in enumerate(prompts):
        engine.submit(Request(prompt, number, (number, 0), rollout.max_new_tokens, rollout.interruption.max_tokens))
    finished: list[Finished] = []
    while engine.running:
        finished += engine.step()
    return sorted(finished, key=lambda done: done.key)


@torch.no_grad()
def gaps(policy: Policy, prompts: list[tuple[int, ...]], finished: list[Finished]) -> np.ndarray:
    """|sampled - rescored| of every sampled token."""
    rows = [torch.tensor([*prompt, *done.tokens]) for prompt, done in zip(prompts, finished, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])
    starts = (lengths.cumsum(0) - lengths).tolist()
    targets = [
        start + len(prompt) + at
        for start, prompt, done in zip(starts, prompts, finished, strict=True)
        for at in np.flatnonzero(done.mask)
    ]
    device = policy.device
    scored, _ = policy.score(torch.cat(rows).to(device), lengths.to(device), torch.tensor(targets, device=device), 1.0)
    sampled = np.concatenate([done.logprobs[done.mask] for done in finished])
    return np.abs(scored.cpu().numpy() - sampled)


def main(model: str = "builtin:tiny-adder", device: str = "cpu") -> None:
    folder = resolve_model(model)
    texts = [prompt.text for prompt in load_task("arithmetic").train[:COMPLETIONS]]
    print("| body | fp32 head on | mean gap | largest gap | mean ratio off 1 by | tokens |\n|---|---|---|---|---|---|")
    for dtype in DTYPES:
        policy = Policy.load(folder, dtype, device)
        prompts = [tuple(policy.encode(text)) for text in texts]
        drawn: dict[bool, list[Finished]] = {}
        for name, (generator, trainer) in HEADS.items():
            policy.fp32_head = generator
            drawn[generator] = drawn.get(generator) or sample(policy, prompts)
            policy.fp32_head = trainer
            found = gaps(policy, prompts, drawn[generator])
            off = np.mean(np.expm1(found))
            print(
                f"| {dtype} | {name} | {found.mean():.1e} | {found.max():.1e} | {off:.1e} | {len(found)} |", flush=True
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
