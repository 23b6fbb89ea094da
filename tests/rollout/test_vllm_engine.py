"""The vLLM engine over a core without vLLM: versions, parked rows, starts that go on, and nothing lost or mixed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Finished, Request, VllmEngine
from scalerl_mini.rollout.interruption import Interruption
from tests.policy.tiny import Tiny, shift_weights, tiny_policy
from tests.rollout.plain_core import PlainCore, plain_engine
from tests.rollout.sampling_support import PROMPTS, assert_same, requests, rescore, run

ALWAYS = Interruption((13, 14), (4,), 3, 3)


def core(engine: VllmEngine) -> PlainCore:
    assert isinstance(engine.core, PlainCore)
    return engine.core


@pytest.fixture
def endless() -> Policy:
    """A policy that never samples an end token."""
    policy = tiny_policy(Tiny("qwen3"))
    policy.model.generation_config.eos_token_id = []
    return policy


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_recorded_equals_rescored(qwen3: Policy, temperature: float) -> None:
    asked = requests(8, budget=3)
    finished = run(plain_engine(qwen3, 3, ALWAYS, temperature), asked)
    assert sum(completion.interrupted for completion in finished.values()) >= 4
    for one in asked:
        completion = finished[one.key]
        scored = rescore(qwen3, one.prompt, completion, temperature).numpy()
        np.testing.assert_allclose(completion.logprobs[completion.mask], scored[completion.mask], atol=1e-5)
        assert (completion.logprobs[~completion.mask] == 0).all()


def test_completions_do_not_depend_on_slots_and_order(qwen3: Policy) -> None:
    """Interrupted ones too: a completion that is started again draws from a seed of its own and its place."""
    few = run(plain_engine(qwen3, 2, ALWAYS), requests(9, budget=3))
    many = run(plain_engine(qwen3, 9, ALWAYS), requests(9, budget=3)[::-1])
    assert few.keys() == many.keys()
    for key, completion in few.items():
        assert_same(completion, many[key])


def test_a_restarted_completion_does_not_draw_the_same_numbers_again(endless: Policy) -> None:
    torch.nn.init.zeros_(endless.head_weight)  # uniform: the token says which number was drawn
    completion = run(plain_engine(endless, 1, ALWAYS), [Request((1,), 5, 0, 10, 3)])[0]
    before, after = completion.tokens[:3].tolist(), completion.tokens[5:8].tolist()
    assert before != after


def test_an_update_is_taken_over_once_and_recorded_where_it_fell(endless: Policy) -> None:
    engine, finished = plain_engine(endless, 4), {}
    for request in requests(4):
        engine.submit(request)
    for step in range(12):
        if step in (3, 7):
            shift_weights(endless, step)
        finished |= {completion.key: completion for completion in engine.step()}
    assert core(engine).loads == [0, 1, 2]
    for completion in finished.values():
        assert completion.versions.tolist() == [0] * 3 + [1] * 4 + [2] * 5


def test_a_prefix_is_never_shared_between_versions(endless: Policy) -> None:
    """What begins after an update has a salt of its own; what goes on keeps the salt of its cache."""
    engine = plain_engine(endless, 4, ALWAYS)
    engine.submit(Request(PROMPTS[0], 1, 0, 12, 3))
    engine.step()
    shift_weights(endless, 1)
    engine.submit(Request(PROMPTS[0], 2, 1, 12, 3))
    while engine.running:
        engine.step()
    first = core(engine).started[0][1]
    assert [salt == first for _, salt in core(engine).started] == [True, False, True, False]


def test_rows_rest_while_another_engine_steps_and_go_on_after(endless: Policy) -> None:
    training = plain_engine(endless, 3)
    evaluation = training.beside(12)
    assert core(evaluation) is core(training)
    for request in requests(3):
        training.submit(request)
    for _ in range(4):
        training.step()
    evaluated = run(evaluation, requests(3))
    assert (training.running, training.free) == (3, 0)
    assert [len(ids) for ids, _ in core(training).started[:3]] == [len(prompt) for prompt in PROMPTS[:3]]
    finished: dict[int, Finished] = {}
    while training.running:
        finished |= {completion.key: completion for completion in training.step()}
    assert [len(ids) for ids, _ in core(training).started[6:]] == [len(prompt) + 4 for prompt in PROMPTS[:3]]
    for key, request in enumerate(requests(3)):
        assert finished[key].tokens[:4].tolist() == evaluated[key].tokens[:4].tolist()
        assert len(finished[key].tokens) == 12
        scored = rescore(endless, request.prompt, finished[key], 1.0)
        np.testing.assert_allclose(finished[key].logprobs, scored, atol=1e-5)


def test_more_than_the_slots_waits_its_turn(qwen3: Policy) -> None:
    engine = plain_engine(qwen3, 2)
    for request in requests(5):
        engine.submit(request)
    assert (engine.free, engine.running) == (-3, 5)
    engine.step()
    assert len(core(engine).started) == 2


@pytest.mark.parametrize("steps", [0, 2])
def test_aborted_completions_never_come_back(endless: Policy, steps: int) -> None:
    engine = plain_engine(endless, 2)
    for request in requests(4):
        engine.submit(request)
    for _ in range(steps):
        engine.step()
    engine.abort(0)  # running, once steps were made
    engine.abort(3)  # still queued
    finished = run(engine, [])
    assert sorted(finished) == [1, 2]
    assert engine.free == 2


def test_a_parked_completion_can_be_aborted(endless: Policy) -> None:
    engine = plain_engine(endless, 2)
    engine.submit(requests(1)[0])
    engine.step()
    engine.park()
    engine.abort(0)
    assert engine.running == 0


def test_what_does_not_fit_is_refused(qwen3: Policy) -> None:
    engine = plain_engine(qwen3, 2)
    with pytest.raises(ValueError, match="without a prompt"):
        engine.submit(Request((), 1, 0, 4))
    with pytest.raises(ValueError, match=r"9 \+ 12 tokens does not fit a slot of 20"):
        engine.submit(Request((1,) * 9, 1, 0, 12))
    with pytest.raises(ValueError, match="does not fit"):
        engine.submit(Request((1,), 1, 0, 13))


def test_an_idle_engine_takes_no_turn(qwen3: Policy) -> None:
    engine = plain_engine(qwen3, 2)
    assert engine.step() == []
    assert core(engine).user is None
    assert core(engine).loads == []
