"""What the engine tests share: requests, running an engine to the end, and comparing completions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Engine, Finished, Request

PROMPTS = [(1, 5, 6, 7), (1, 9), (1, 8, 8, 3, 4, 5, 12), (1,)]


def requests(count: int, limit: int = 12, budget: int | None = None, prompts: int = len(PROMPTS)) -> list[Request]:
    """`count` completions, seeds and keys of their own, prompts in turn."""
    return [Request(PROMPTS[i % prompts], 1000 + i, i, limit, budget) for i in range(count)]


def run(engine: Engine, asked: list[Request]) -> dict[int, Finished]:
    """Submit everything and step until nothing is left; completions by key."""
    for request in asked:
        engine.submit(request)
    finished: dict[int, Finished] = {}
    while engine.running:
        for completion in engine.step():
            assert completion.key not in finished
            finished[completion.key] = completion
    return finished


def rescore(policy: Policy, prompt: tuple[int, ...], completion: Finished, temperature: float) -> Tensor:
    """The trainer's log-probabilities of every token of a completion."""
    ids = torch.tensor([*prompt, *completion.tokens.tolist()])
    targets = torch.arange(len(prompt), len(ids))
    with torch.no_grad():
        return policy.score(ids, torch.tensor([len(ids)]), targets, temperature)[0]


def assert_same(ours: Finished, theirs: Finished) -> None:
    """Equal in all that was sampled; log-probabilities may differ by rounding."""
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert ours.mask.tolist() == theirs.mask.tolist()
    assert ours.versions.tolist() == theirs.versions.tolist()
    assert (ours.finish, ours.interrupted) == (theirs.finish, theirs.interrupted)
    np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-5)
