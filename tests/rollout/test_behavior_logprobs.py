"""Invariant 3: behaviour log-probabilities are those of the weights and the temperature that sampled the token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Finished, TorchEngine
from scalerl_mini.rollout.interruption import Interruption
from tests.policy.tiny import Tiny, mixed_cache_logprobs, plain, plain_logprobs, shift_weights, tiny_policy
from tests.rollout.sampling_support import PROMPTS, requests, rescore, run

TOLERANCE = 1e-5


def gap(recorded: np.ndarray, expected: torch.Tensor) -> float:
    return float(np.abs(recorded - expected.numpy()).max())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_recorded_equals_rescored(name: str, temperature: float, request: pytest.FixtureRequest) -> None:
    policy: Policy = request.getfixturevalue(name)
    asked = requests(20)
    finished = run(TorchEngine(policy, 6, 8, 12, temperature), asked)
    for one in asked:
        scored = rescore(policy, one.prompt, finished[one.key], temperature)
        assert gap(finished[one.key].logprobs, scored) < TOLERANCE
        other = rescore(policy, one.prompt, finished[one.key], temperature * 1.01)
        assert gap(finished[one.key].logprobs, other) > TOLERANCE  # the test would notice one per cent
    assert len({tuple(completion.tokens) for completion in finished.values()}) > 10


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@torch.no_grad()
def test_recorded_equals_plain_transformers(qwen3: Policy, temperature: float) -> None:
    """Independent of our head, our attention and our shift: eager attention and a log-softmax written here."""
    asked = requests(8)
    finished = run(TorchEngine(qwen3, 3, 8, 12, temperature), asked)
    model = plain(qwen3)
    for one in asked:
        ids = [*one.prompt, *finished[one.key].tokens.tolist()]
        table = plain_logprobs(model, ids, temperature)[len(one.prompt) - 1 :]
        tokens = torch.tensor(ids[len(one.prompt) :])
        assert gap(finished[one.key].logprobs, table.gather(1, tokens[:, None])[:, 0]) < TOLERANCE


def test_forced_tokens_carry_the_policy_s_own_log_probability(qwen3: Policy) -> None:
    asked = requests(6, budget=3)
    finished = run(TorchEngine(qwen3, 6, 8, 12, 1.0, Interruption((13, 14), (4,), 3, 3)), asked)
    assert sum(completion.interrupted for completion in finished.values()) >= 3
    for one in asked:
        scored = rescore(qwen3, one.prompt, finished[one.key], 1.0)
        assert gap(finished[one.key].logprobs, scored) < TOLERANCE


def sample_with_updates(
    policy: Policy, temperature: float, updates: dict[int, int]
) -> tuple[dict[int, Finished], list]:
    """Decode 4 completions to 12 tokens; before step s the weights move, for s in `updates` (step -> seed)."""
    engine = TorchEngine(policy, 4, 8, 12, temperature)
    models, finished = [plain(policy)], {}
    for request in requests(4):
        engine.submit(request)
    for step in range(12):
        if step in updates:
            shift_weights(policy, updates[step])
            models.append(plain(policy))
        finished |= {completion.key: completion for completion in engine.step()}
    assert engine.running == 0
    return finished, models


@pytest.fixture
def endless() -> Policy:
    """A policy that never samples an end token, so that every completion lives through the update."""
    policy = tiny_policy(Tiny("qwen3"))
    policy.model.generation_config.eos_token_id = []
    return policy


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("when", [1, 5, 11])
@torch.no_grad()
def test_an_update_in_mid_sequence_keeps_the_old_cache(endless: Policy, temperature: float, when: int) -> None:
    """Tokens before the update match the old weights; later ones a reference that keeps the old keys and values."""
    finished, (old, new) = sample_with_updates(endless, temperature, {when: 3})
    restarted = 0.0
    for key, completion in finished.items():
        assert completion.versions.tolist() == [0] * when + [1] * (12 - when)
        prompt = PROMPTS[key]
        ids, tokens = [*prompt, *completion.tokens.tolist()], torch.from_numpy(completion.tokens).long()[:, None]
        start = len(prompt) - 1
        before = plain_logprobs(old, ids, temperature)[start:].gather(1, tokens)[:, 0]
        assert gap(completion.logprobs[:when], before[:when]) < TOLERANCE
        # the token sampled last before the update has not been fed yet: the new weights read it
        mixed = mixed_cache_logprobs(old, new, ids, start + when, temperature)[start:].gather(1, tokens)[:, 0]
        assert gap(completion.logprobs, mixed) < TOLERANCE
        fresh = plain_logprobs(new, ids, temperature)[start:].gather(1, tokens)[:, 0]
        restarted = max(restarted, gap(completion.logprobs[when:], fresh[when:]))
    assert restarted > 1e-3  # recomputing the cache under the new weights would be told apart


@torch.no_grad()
def test_two_updates_are_recorded_where_they_fell(endless: Policy) -> None:
    finished, (first, second, third) = sample_with_updates(endless, 1.0, {3: 1, 7: 2})
    for completion in finished.values():
        assert completion.versions.tolist() == [0] * 3 + [1] * 4 + [2] * 5
    ids = [*PROMPTS[0], *finished[0].tokens.tolist()]
    token = finished[0].tokens[3]
    mixed = mixed_cache_logprobs(first, second, ids, len(PROMPTS[0]) + 2, 1.0)[len(PROMPTS[0]) + 2, token]
    assert float(finished[0].logprobs[3]) == pytest.approx(float(mixed), abs=TOLERANCE)


def test_a_completion_that_starts_after_an_update_is_all_new(endless: Policy) -> None:
    """Its slot was used under the old weights; nothing of them is left."""
    engine = TorchEngine(endless, 2, 8, 12)
    run(engine, requests(2))
    shift_weights(endless, 9)
    for request, completion in zip(requests(2), run(engine, requests(2)).values(), strict=True):
        assert set(completion.versions.tolist()) == {1}
        assert gap(completion.logprobs, rescore(endless, request.prompt, completion, 1.0)) < TOLERANCE
