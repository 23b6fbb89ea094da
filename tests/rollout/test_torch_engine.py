"""The torch engine: what a completion is does not depend on slots, order, neighbours or what a slot held before."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Finished, Request, TorchEngine
from tests.policy.tiny import EOS, Tiny, plain, shift_weights, tiny_policy
from tests.rollout.sampling_support import PROMPTS, assert_same, requests, rescore, run


@pytest.fixture(scope="module")
def alone(qwen3: Policy) -> dict[int, Finished]:
    """Twenty completions, each in an engine of its own with one slot."""
    return {one.key: run(TorchEngine(qwen3, 1, 8, 12), [one])[one.key] for one in requests(20)}


@pytest.mark.parametrize("slots", [1, 3, 8, 32])
def test_completions_do_not_depend_on_the_slots(qwen3: Policy, alone: dict[int, Finished], slots: int) -> None:
    finished = run(TorchEngine(qwen3, slots, 8, 12), requests(20))
    assert finished.keys() == alone.keys()
    for key, completion in finished.items():
        assert_same(completion, alone[key])


@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_completions_do_not_depend_on_the_order(qwen3: Policy, alone: dict[int, Finished], shuffle: int) -> None:
    asked = requests(20)
    Random(shuffle).shuffle(asked)
    for key, completion in run(TorchEngine(qwen3, 5, 8, 12), asked).items():
        assert_same(completion, alone[key])


def test_completions_do_not_depend_on_arrivals_in_between(qwen3: Policy, alone: dict[int, Finished]) -> None:
    engine, waiting, finished = TorchEngine(qwen3, 4, 8, 12), requests(20), {}
    random = Random(4)
    while waiting or engine.running:
        for _ in range(random.randrange(3)):
            if waiting:
                engine.submit(waiting.pop())
        finished |= {completion.key: completion for completion in engine.step()}
    for key, completion in finished.items():
        assert_same(completion, alone[key])


def test_lengths_and_ends_vary_in_the_examples_above(alone: dict[int, Finished]) -> None:
    assert {completion.finish for completion in alone.values()} == {"eos", "length"}
    assert len({len(completion.tokens) for completion in alone.values()}) > 3


def test_a_slot_keeps_no_trace_of_its_last_completion(qwen3: Policy) -> None:
    """One slot, long rubbish first, then a short prompt; and a running row is not touched by a neighbour's start."""
    fresh = run(TorchEngine(qwen3, 1, 8, 12), [Request((1,), 7, "short", 12)])["short"]
    used = TorchEngine(qwen3, 1, 8, 12)
    run(used, [Request((5,) * 8, seed, seed, 12) for seed in range(5)])
    assert_same(run(used, [Request((1,), 7, "short", 12)])["short"], fresh)


def test_a_group_shares_its_prompt_and_differs_in_its_samples(qwen3: Policy) -> None:
    group = [Request(PROMPTS[0], seed, seed, 12) for seed in range(8)]
    finished = run(TorchEngine(qwen3, 8, 8, 12), group)
    assert len({tuple(completion.tokens) for completion in finished.values()}) >= 7
    for one in group:
        assert_same(finished[one.key], run(TorchEngine(qwen3, 1, 8, 12), [one])[one.key])


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_the_limit_cuts_exactly(qwen3: Policy, limit: int) -> None:
    finished = run(TorchEngine(qwen3, 4, 8, 12), requests(12, limit))
    for completion in finished.values():
        assert len(completion.tokens) <= limit
        assert (completion.finish == "eos") == (completion.tokens[-1] == EOS)
        assert completion.finish == "eos" or len(completion.tokens) == limit
        assert EOS not in completion.tokens[:-1]
    assert "length" in {completion.finish for completion in finished.values()}


def test_arrays_have_one_length_and_the_promised_types(alone: dict[int, Finished]) -> None:
    for completion in alone.values():
        count = len(completion.tokens)
        assert completion.logprobs.shape == completion.versions.shape == completion.mask.shape == (count,)
        assert completion.tokens.dtype == completion.versions.dtype == np.int32
        assert (completion.logprobs.dtype, completion.mask.dtype) == (np.float32, np.bool_)
        assert completion.mask.all()
        assert not completion.interrupted


def test_free_and_running_count_the_queue(qwen3: Policy) -> None:
    engine = TorchEngine(qwen3, 3, 8, 12)
    for request in requests(2):
        engine.submit(request)
    assert (engine.free, engine.running) == (1, 2)
    engine.step()
    for request in requests(2):
        engine.submit(request)
    assert engine.free + engine.running == 3
    assert TorchEngine(qwen3, 3, 8, 12).step() == []


def test_abort_forgets_queued_and_running(qwen3: Policy, alone: dict[int, Finished]) -> None:
    engine = TorchEngine(qwen3, 2, 8, 12)
    for request in requests(5):
        engine.submit(request)
    finished = {completion.key: completion for completion in engine.step()}
    running, queued = 1, 4
    assert running not in finished
    engine.abort(running)
    engine.abort(queued)
    engine.abort("nobody")
    while engine.running:
        finished |= {completion.key: completion for completion in engine.step()}
    assert finished.keys() == {0, 2, 3}
    for key, completion in finished.items():
        assert_same(completion, alone[key])


def test_requests_that_do_not_fit_are_refused(qwen3: Policy) -> None:
    engine = TorchEngine(qwen3, 2, 4, 6)
    engine.submit(Request((1,) * 4, 0, 0, 6))
    for prompt, limit in (((1,) * 5, 6), ((1,), 7), ((1,) * 11, 1)):
        with pytest.raises(ValueError, match="does not fit"):
            engine.submit(Request(prompt, 0, 0, limit))
    with pytest.raises(ValueError, match="without a prompt"):
        engine.submit(Request((), 0, 0, 6))
    assert len(run(engine, [])) == 1


def test_two_engines_share_one_policy(alone: dict[int, Finished]) -> None:
    """Training and evaluation rollouts interleave; after an update both sample from the new weights."""
    policy = tiny_policy(Tiny("qwen3"))
    first, second = TorchEngine(policy, 3, 8, 12), TorchEngine(policy, 5, 8, 12)
    finished: dict[str, dict[int, Finished]] = {"first": {}, "second": {}}
    for request in requests(20):
        first.submit(request)
        second.submit(request)
    while first.running or second.running:
        finished["first"] |= {completion.key: completion for completion in first.step()}
        finished["second"] |= {completion.key: completion for completion in second.step()}
    for part in finished.values():
        for key, completion in part.items():
            assert_same(completion, alone[key])
    shift_weights(policy, 1)
    for engine in (first, second):
        for one in (asked := requests(4)):
            engine.submit(one)
        for completion in run(engine, []).values():
            assert set(completion.versions.tolist()) == {1}
            scored = rescore(policy, asked[completion.key].prompt, completion, 1.0)
            np.testing.assert_allclose(completion.logprobs, scored.numpy(), atol=1e-5)


def test_the_policy_can_be_trained_after_it_has_sampled() -> None:
    """Nothing that was computed without gradients is left in the model."""
    policy = tiny_policy(Tiny("qwen3"))
    run(TorchEngine(policy, 3, 8, 12), requests(4))
    policy.score(torch.tensor([1, 5, 6]), torch.tensor([3]), torch.tensor([1, 2]), 1.0)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())


@pytest.mark.parametrize("tiny", [Tiny("llama", tied=True), Tiny("qwen2", kv_heads=4), Tiny("qwen3")])
def test_cold_sampling_is_greedy_generation(tiny: Tiny) -> None:
    """At temperature 1e-4 the engine follows `generate(do_sample=False)` of transformers."""
    policy = tiny_policy(tiny)
    asked = requests(len(PROMPTS))
    finished = run(TorchEngine(policy, 3, 8, 12, temperature=1e-4), asked)
    model = plain(policy, "sdpa")
    for one in asked:
        greedy = model.generate(torch.tensor([one.prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)[0]
        assert finished[one.key].tokens.tolist() == greedy[len(one.prompt) :].tolist()


def test_every_key_comes_back_once(qwen3: Policy) -> None:
    finished = run(TorchEngine(qwen3, 7, 8, 12), requests(40))
    assert sorted(finished) == list(range(40))
