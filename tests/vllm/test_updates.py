"""Weights that arrive while completions run, log-probabilities, versions, interruption: the real vLLM."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Finished, Request, VllmEngine
from scalerl_mini.rollout.interruption import Interruption
from tests.policy.tiny import mixed_cache_logprobs, plain, shift_weights
from tests.rollout.sampling_support import requests, rescore, run
from tests.vllm.real_engine import endless_policy, real_engine

GAP = 1e-4
PHRASE = Interruption((13, 14), (4,), 5, 5)
PROMPT = tuple(1 + i % 11 for i in range(40))  # fills a block of the paged cache and part of the next


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def policy(request: pytest.FixtureRequest) -> Policy:
    return endless_policy(request.param)


def finish(engine: VllmEngine) -> dict[int, Finished]:
    return run(engine, [])


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_recorded_equals_rescored(policy: Policy, temperature: float) -> None:
    """At temperatures other than 1, where log-probabilities from before the temperature would be far off."""
    asked = requests(8, limit=24)
    finished = run(real_engine(policy, 4, temperature=temperature), asked)
    for one in asked:
        scored = rescore(policy, one.prompt, finished[one.key], temperature).numpy()
        np.testing.assert_allclose(finished[one.key].logprobs, scored, atol=GAP)


def test_an_update_keeps_the_cache_and_reaches_every_tensor(policy: Policy) -> None:
    """After a push the log-probabilities are the new weights' on the old weights' keys and values - and neither the old
    weights' nor the new weights' alone; of a tied model the head is new as well."""
    engine = real_engine(policy)
    old = plain(policy)
    engine.submit(Request(PROMPT, 1, 0, 24))
    for _ in range(10):
        engine.step()
    shift_weights(policy, 1)
    completion = finish(engine)[0]
    assert completion.versions.tolist() == [0] * 10 + [1] * 14

    ids = [*PROMPT, *completion.tokens.tolist()]
    new, start = plain(policy), len(PROMPT) - 1
    with torch.no_grad():
        mixed = mixed_cache_logprobs(old, new, ids, len(PROMPT) + 9, 1.0)
        recomputed = mixed_cache_logprobs(new, new, ids, len(PROMPT) + 9, 1.0)
    targets = torch.tensor(ids[len(PROMPT) :])[:, None]
    kept = mixed[start:].gather(1, targets)[:, 0].numpy()
    fresh = recomputed[start:].gather(1, targets)[:, 0].numpy()
    np.testing.assert_allclose(completion.logprobs, kept, atol=GAP)
    assert np.abs(completion.logprobs - fresh)[10:].mean() > 10 * GAP


def test_a_new_completion_never_reads_the_cache_of_older_weights(policy: Policy) -> None:
    engine = real_engine(policy)
    run(engine, [Request(PROMPT, 1, 0, 8)])
    shift_weights(policy, 1)
    completion = run(engine, [Request(PROMPT, 2, 1, 8)])[1]
    np.testing.assert_allclose(completion.logprobs, rescore(policy, PROMPT, completion, 1.0).numpy(), atol=GAP)


def test_forced_interruption(policy: Policy) -> None:
    asked = [Request(PROMPT, seed, seed, 24, 5) for seed in range(4)]
    finished = run(real_engine(policy, interruption=PHRASE), asked)
    interrupted = [completion for completion in finished.values() if completion.interrupted]
    assert interrupted
    for completion in interrupted:
        assert completion.tokens[5:7].tolist() == [13, 14]
        assert np.flatnonzero(~completion.mask).tolist() == [5, 6]
        scored = rescore(policy, PROMPT, completion, 1.0).numpy()
        np.testing.assert_allclose(completion.logprobs[completion.mask], scored[completion.mask], atol=GAP)


def test_parked_completions_go_on(policy: Policy) -> None:
    training = real_engine(policy)
    evaluation = training.beside(16)
    training.submit(Request(PROMPT, 1, 0, 24))
    for _ in range(6):
        training.step()
    run(evaluation, [Request(PROMPT[:5], 2, 0, 16)])
    completion = finish(training)[0]
    assert len(completion.tokens) == 24
    np.testing.assert_allclose(completion.logprobs, rescore(policy, PROMPT, completion, 1.0).numpy(), atol=GAP)
