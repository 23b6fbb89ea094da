"""The start-up check of a generator, before it samples anything for training: does its engine run the published weights?

The weights in this process must have the checksum that the trainer published, and the engine's log-probabilities must be
those of these weights. An engine with weights of its own (vLLM) begins with random ones, so agreement shows that a push
reaches every tensor, the head of a tied model included. A second check, of generator against trainer, follows in the
trainer on the first batch (`training.self_check`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from scalerl_mini.errors import WouldComeAgain
from scalerl_mini.policy.model import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.engines import Engine, Finished, Request
from scalerl_mini.runtime.weight_channel import checksum

COMPLETIONS, TOKENS = 8, 16
LARGEST_GAP = 1e-3  # of one log-probability of an fp32 body; measured: about 1e-5
MEAN_GAP = 1e-4  # of an fp32 mixture of experts, where single tokens may be routed differently
ROUNDED_MEAN_GAP = 0.25  # of a 16-bit body; measured: up to 0.04, a forgotten temperature of 0.7: 0.4


@dataclass(frozen=True)
class EngineGap:
    """|log-probability of the engine - log-probability of the policy| over `tokens` sampled tokens."""

    mean: float
    largest: float
    tokens: int


def check_engine(
    engine: Engine, policy: Policy, prompts: list[tuple[int, ...]], temperature: float, published: int
) -> EngineGap:
    """Sample a few short completions with an idle engine and rescore them; published: checksum of the weights.

    Raises WouldComeAgain, with the reason, when the engine must not be trained from.
    """
    held = checksum(WeightBytes(policy).pull().values())
    if held != published:
        raise WouldComeAgain(f"generator holds weights of checksum {held}, the trainer published {published}")
    shortest = sorted(prompts, key=len)[:COMPLETIONS]
    for number, prompt in enumerate(shortest):
        engine.submit(Request(prompt, number, (number, 0), TOKENS))
    finished: list[Finished] = []
    while engine.running:
        finished += engine.step()
    gaps = np.concatenate([_gaps(policy, shortest[done.key[0]], done, temperature) for done in finished])
    gap = EngineGap(float(gaps.mean()), float(gaps.max()), len(gaps))
    _refuse(gap, policy)
    if any((done.versions != policy.version).any() for done in finished):
        raise WouldComeAgain(f"the engine does not say that version {policy.version} sampled its tokens")
    return gap


def _gaps(policy: Policy, prompt: tuple[int, ...], done: Finished, temperature: float) -> np.ndarray:
    ids = torch.tensor([*prompt, *done.tokens.tolist()], device=policy.device)
    targets = torch.arange(len(prompt), len(ids), device=policy.device)
    with torch.no_grad():
        scored, _ = policy.score(ids, torch.tensor([len(ids)], device=policy.device), targets, temperature)
    return np.abs(scored.cpu().numpy() - done.logprobs)[done.mask]


def _refuse(gap: EngineGap, policy: Policy) -> None:
    what, found, bound = "a", gap.largest, LARGEST_GAP
    if policy.body.dtype != torch.float32:
        what, found, bound = "the mean", gap.mean, ROUNDED_MEAN_GAP
    elif policy.active_experts < 1:
        what, found, bound = "the mean", gap.mean, MEAN_GAP
    if not found <= bound:
        raise WouldComeAgain(
            f"the engine does not run the weights of version {policy.version}: {what} log-probability differs by "
            f"{found:.4g} from theirs, where less than {bound:g} is expected"
        )
