"""The trainer's step against bare forward, backward and AdamW on the same packed tokens; and what packing wastes.

    python -m tests.bench.bench_trainer [--short] [--json FILE]

Bare: the same micro-batches, one whole-row forward through the same body, mean log-probability as the loss, AdamW.
Waste: padded places inside attention that hold no token, of all places (linear layers never see one).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from scalerl_mini.config import Config
from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import PackedSequences
from scalerl_mini.rollout.engines import Request, TorchEngine
from scalerl_mini.runtime.rollout_buffer import BufferShape
from scalerl_mini.tasks import load_task
from scalerl_mini.training.batch import Batch, assemble
from scalerl_mini.training.learner import Learner
from scalerl_mini.training.optimizer import Optimizer
from scalerl_mini.training.preflight import resolve_model
from tests.bench.harness import Ratio, main, seconds

GROUPS, SIZE, LIMIT = 16, 8, 51


def sampled_batch(policy: Policy, config: Config) -> Batch:
    """A batch of the default job's completions; rewards alternate so that no group is filtered."""
    prompts = [tuple(policy.encode(prompt.text)) for prompt in load_task("arithmetic").train[:GROUPS]]
    engine = TorchEngine(policy, GROUPS * SIZE, max(map(len, prompts)), LIMIT)
    records = np.zeros(GROUPS, BufferShape(GROUPS, SIZE, 32, LIMIT).record)
    for number, prompt in enumerate(prompts):
        records[number]["prompt_length"] = len(prompt)
        records[number]["prompt"][: len(prompt)] = prompt
        records[number]["rewards"][:] = np.arange(SIZE) % 2
        for sample in range(SIZE):
            engine.submit(Request(prompt, 100 * number + sample, (number, sample), LIMIT))
    while engine.running:
        for done in engine.step():
            group, sample = done.key
            for name in ("tokens", "logprobs", "mask"):
                records[group][name][sample, : len(done.tokens)] = getattr(done, name)
            records[group]["lengths"][sample] = len(done.tokens)
    return assemble(list(records), config.objective)


def measure(short: bool) -> list[Ratio]:
    torch.set_num_threads(1)
    config = Config()
    policy = Policy.load(resolve_model(config.model.name))
    batch = sampled_batch(policy, config)
    micro_batches = list(batch.micro_batches(config.training.micro_batch_tokens, policy.device))
    tokens = sum(len(micro.ids) for micro in micro_batches)
    learner = Learner(policy, Optimizer(policy.named_tensors(), config.training), config)
    bare_policy = Policy.load(resolve_model(config.model.name))
    adamw = torch.optim.AdamW(bare_policy.model.parameters(), lr=1e-4)

    def bare() -> None:
        for micro in micro_batches:
            layout = PackedSequences(micro.lengths)
            hidden = bare_policy.hidden_states(micro.ids, layout.positions, layout)
            log_p = (hidden @ bare_policy.head_weight.T).log_softmax(-1)
            log_p[micro.targets - 1, micro.ids[micro.targets]].mean().backward()
        adamw.step()
        adamw.zero_grad()

    bare(), learner.update(batch)
    ours, theirs = seconds(lambda: learner.update(batch), bare, repeats=5 if short else 15)
    layouts = [PackedSequences(micro.lengths) for micro in micro_batches]
    waste = 1 - tokens / sum(layout.count * layout.longest for layout in layouts)
    detail = f"{tokens} tokens: {tokens / ours:.0f} tokens/s, bare {tokens / theirs:.0f}"
    return [
        Ratio("trainer step / bare step, tokens/s", theirs / ours, 0.9, True, detail),
        Ratio("packing waste", waste, 0.05, False, f"{len(layouts)} micro-batches of sorted lengths, default job"),
    ]


if __name__ == "__main__":
    main(measure, __doc__)
