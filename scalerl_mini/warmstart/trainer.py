"""The supervised warm start: two phases of imitation, packed rows, one thread, deterministic from its seed.

Phase "facts" teaches addition from nearly clean demonstrations; phase "sloppy" then teaches bad habits for a while
(see `demonstrations`). What the model starts reinforcement learning with - its pass rate, and how much it could do if
it were careful - is set by the two phases' lengths and rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from scalerl_mini.warmstart.demonstrations import Demonstration, Sloppiness, demonstrations
from scalerl_mini.warmstart.packing import IGNORED, Example, pack

DEMONSTRATIONS_PER_STEP = 64
ROW_WIDTH = 256
WARM_UP_STEPS = 20


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of imitation: `steps` optimiser steps, peak learning rate `lr`, which falls to 0 by `decay`."""

    name: str
    steps: int
    lr: float
    decay: Literal["cosine", "linear"]
    sloppiness: Sloppiness


FACTS = Phase("facts", 550, 4e-3, "cosine", Sloppiness(wrong_sum=0.02, cut_short=0.05, ramble=0.03))
SLOPPY = Phase("sloppy", 80, 1e-3, "linear", Sloppiness(wrong_sum=0.22, cut_short=0.50, ramble=0.08))

Report = Callable[[str, int, float], None]
"""Called after each step with the phase's name, the number of steps done in it and the loss in nats a token."""


def imitate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: Phase,
    stream: Iterator[Demonstration],
    report: Report,
) -> None:
    """Train `model` in place for one phase on demonstrations from `stream`."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=phase.lr, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    for step in range(phase.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(phase, step)
        batch = [encode(demo, tokenizer) for demo in islice(stream, DEMONSTRATIONS_PER_STEP)]
        loss = imitation_loss(model, batch, tokenizer.pad_token_id)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        report(phase.name, step + 1, loss.item())


def learning_rate(phase: Phase, step: int) -> float:
    """Linear warm-up, then the phase's decay to 0 at its end."""
    left = 1 - step / phase.steps
    shape = left if phase.decay == "linear" else (1 - math.cos(math.pi * left)) / 2
    return phase.lr * shape * min(1.0, (step + 1) / WARM_UP_STEPS)


def encode(demonstration: Demonstration, tokenizer: PreTrainedTokenizerBase) -> Example:
    """Token ids of a demonstration, of which only the completion is learned."""
    prompt = tokenizer.encode(demonstration.prompt.text, add_special_tokens=False)
    completion = tokenizer.encode(demonstration.completion, add_special_tokens=False)
    return Example(prompt + completion, len(prompt))


def imitation_loss(model: PreTrainedModel, batch: list[Example], pad_id: int) -> torch.Tensor:
    """Mean cross-entropy in nats over the completion tokens of the batch."""
    rows = pack(batch, ROW_WIDTH, pad_id)
    logits = model(
        input_ids=rows.input_ids, position_ids=rows.position_ids, attention_mask=rows.attention, use_cache=False
    ).logits
    return cross_entropy(logits.flatten(0, 1).float(), rows.targets.flatten(), ignore_index=IGNORED)


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    digits: tuple[int, int],
    report: Report,
    phases: tuple[Phase, ...] = (FACTS, SLOPPY),
) -> None:
    """Run the phases one after the other on problems of `digits[0]`..`digits[1]` digits. Sets torch to one thread."""
    torch.set_num_threads(1)
    for phase in phases:
        imitate(model, tokenizer, phase, demonstrations(seed, phase.sloppiness, *digits), report)
