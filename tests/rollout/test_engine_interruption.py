"""Forced interruption in the engine: exactly at the budget, token by token, masked, and never after self-ended thinking.

A chain policy stands in for a model: its next token follows from the last one alone, so every case can be dictated. The
torch engine forces the phrase row by row, the vLLM engine stops, appends and goes on (here over a core without vLLM).
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Engine, Finished, Request, TorchEngine
from scalerl_mini.rollout.interruption import Interruption
from tests.policy.tiny import EOS, Tiny, tiny_policy
from tests.rollout.plain_core import plain_engine

BUDGET = 4
kind = "torch"


@pytest.fixture(params=["torch", "vllm"], autouse=True)
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of this file with either engine."""
    monkeypatch.setattr(sys.modules[__name__], "kind", request.param)


def make_engine(policy: Policy, slots: int, interruption: Interruption) -> Engine:
    if kind == "vllm":
        return plain_engine(policy, slots, interruption)
    return TorchEngine(policy, slots, 4, 12, 1.0, interruption)


def chain(follows: dict[int, int]) -> Policy:
    """A policy that always samples follows[last token]: layers add nothing, embeddings are one-hot, the head maps on."""
    policy = tiny_policy(Tiny("llama", hidden=24))
    with torch.no_grad():
        for layer in policy.body.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        policy.body.norm.weight.fill_(1.0)
        policy.body.embed_tokens.weight.copy_(torch.eye(24))
        policy.head_weight.zero_()
        for last, following in follows.items():
            policy.head_weight[following, last] = 20.0
    return policy


def complete(
    follows: dict[int, int],
    phrase: tuple[int, ...],
    think_end: tuple[int, ...],
    limit: int = 12,
    budget: int | None = BUDGET,
) -> Finished:
    """One completion of the prompt (1,) by a chain."""
    engine = make_engine(chain(follows), 2, Interruption(phrase, think_end, BUDGET, BUDGET))
    engine.submit(Request((1,), 5, "key", limit, budget))
    finished = []
    while not finished:
        finished = engine.step()
    return finished[0]


COUNTING = {1: 10, 10: 11, 11: 12, 12: 13, 13: 14, 14: 15, 15: 16, 16: EOS}


@pytest.mark.parametrize("phrase", [(20,), (20, 21), (20, 21, 22)])
def test_the_phrase_is_forced_exactly_at_the_budget(phrase: tuple[int, ...]) -> None:
    after = {phrase[-1]: 7, 7: EOS}
    completion = complete(COUNTING | after, phrase, think_end=(23,))
    assert completion.tokens.tolist() == [10, 11, 12, 13, *phrase, 7, EOS]
    assert completion.mask.tolist() == [True] * 4 + [False] * len(phrase) + [True, True]
    assert completion.interrupted
    assert completion.finish == "eos"


@pytest.mark.parametrize(("length", "think_end"), [(1, (10,)), (2, (10, 11)), (3, (10, 11, 12)), (4, (12, 13))])
def test_thinking_ended_in_time_is_never_interrupted(length: int, think_end: tuple[int, ...]) -> None:
    """Up to the very token of the budget, by an end of one token or of several."""
    completion = complete(COUNTING, (20, 21), think_end)
    assert completion.tokens.tolist() == [10, 11, 12, 13, 14, 15, 16, EOS]
    assert completion.mask.all()
    assert not completion.interrupted


@pytest.mark.parametrize("think_end", [(13, 14), (14,), (11, 13), (12, 10), (1, 10), (10, 10)])
def test_an_end_that_comes_late_or_in_part_or_in_the_prompt_does_not_count(think_end: tuple[int, ...]) -> None:
    completion = complete(COUNTING | {20: EOS}, (20,), think_end)
    assert completion.tokens.tolist() == [10, 11, 12, 13, 20, EOS]
    assert completion.interrupted


def test_an_end_token_before_the_budget_ends_the_completion() -> None:
    completion = complete({1: 10, 10: 11, 11: EOS}, (20,), (23,))
    assert completion.tokens.tolist() == [10, 11, EOS]
    assert (completion.finish, completion.interrupted) == ("eos", False)


def test_an_end_token_exactly_at_the_budget_is_no_interruption() -> None:
    """Nothing was forced, so nothing was interrupted; the rate would be overstated otherwise."""
    completion = complete({1: 10, 10: 11, 11: 12, 12: EOS}, (20,), (23,))
    assert completion.tokens.tolist() == [10, 11, 12, EOS]
    assert completion.mask.all()
    assert (completion.finish, completion.interrupted) == ("eos", False)


def test_an_end_token_inside_the_phrase_is_forced_and_does_not_end_it() -> None:
    completion = complete(COUNTING | {20: 9, EOS: 9, 21: 7, 7: EOS}, (20, EOS, 21), (23,))
    assert completion.tokens.tolist() == [10, 11, 12, 13, 20, EOS, 21, 7, EOS]
    assert completion.finish == "eos"


def test_a_phrase_that_ends_in_an_end_token_goes_on() -> None:
    completion = complete(COUNTING | {EOS: 7, 7: 8, 8: EOS}, (20, EOS), (23,))
    assert completion.tokens.tolist() == [10, 11, 12, 13, 20, EOS, 7, 8, EOS]


@pytest.mark.parametrize("limit", [5, 6])
def test_a_limit_within_the_phrase_cuts_it(limit: int) -> None:
    completion = complete(COUNTING, (20, 21, 22), (23,), limit=limit)
    assert completion.tokens.tolist() == [10, 11, 12, 13, 20, 21][:limit]
    assert completion.mask.tolist() == [True] * 4 + [False] * (limit - 4)
    assert (completion.finish, completion.interrupted) == ("length", True)


def test_a_limit_at_the_budget_leaves_no_room_for_an_interruption() -> None:
    completion = complete(COUNTING, (20,), (23,), limit=BUDGET)
    assert (completion.finish, completion.interrupted, len(completion.tokens)) == ("length", False, BUDGET)


def test_no_budget_means_no_interruption() -> None:
    assert complete(COUNTING, (20,), (23,), budget=None).tokens.tolist() == [10, 11, 12, 13, 14, 15, 16, EOS]


def test_the_phrase_may_hold_the_end_of_thinking_and_is_forced_once() -> None:
    """After the phrase the chain would reach any budget again; a completion is interrupted once."""
    completion = complete(COUNTING | {21: 10}, (20, 21), (21,))
    assert completion.tokens.tolist() == [10, 11, 12, 13, 20, 21, 10, 11, 12, 13, 14, 15]
    assert completion.mask.sum() == 10


def test_a_slot_forgets_the_interruption_of_its_last_completion() -> None:
    engine = make_engine(chain(COUNTING | {20: EOS}), 1, Interruption((20,), (23,), 1, 9))
    for budget in (2, None, 5):
        engine.submit(Request((1,), 5, budget, 12, budget))
    finished = {}
    while engine.running:
        finished |= {completion.key: completion for completion in engine.step()}
    assert finished[2].tokens.tolist() == [10, 11, 20, EOS]
    assert finished[None].tokens.tolist() == [10, 11, 12, 13, 14, 15, 16, EOS]
    assert finished[5].tokens.tolist() == [10, 11, 12, 13, 14, 20, EOS]


def test_rows_are_interrupted_each_at_its_own_budget() -> None:
    engine = make_engine(chain(COUNTING | {20: EOS}), 8, Interruption((20,), (23,), 1, 9))
    for budget in range(1, 8):
        engine.submit(Request((1,), budget, budget, 12, budget))
    finished = {}
    while engine.running:
        finished |= {completion.key: completion for completion in engine.step()}
    for budget in range(1, 7):
        assert np.flatnonzero(~finished[budget].mask).tolist() == [budget]
    assert finished[7].mask.tolist() == [True] * 7 + [False, True]
