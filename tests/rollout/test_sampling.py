"""Sampled frequencies, and the one number in 2^25 that fp32 would round to an impossible token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from scalerl_mini.config_groups import InterruptionConfig, RolloutConfig
from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import Request, TorchEngine
from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.rollout.sampling import RequestFactory, build_engine, build_interruption
from scalerl_mini.seeds import derive_seed
from tests.policy.tiny import plain, plain_logprobs
from tests.rollout.sampling_support import run

PROMPT = (1, 5, 6, 7)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@torch.no_grad()
def test_first_tokens_have_the_model_s_frequencies(qwen3: Policy, temperature: float) -> None:
    """Chi-square of 20,000 first tokens against plain transformers; tokens expected less than five times are pooled."""
    count = 20_000
    asked = [Request(PROMPT, derive_seed("chi-square", n), n, 1) for n in range(count)]
    finished = run(TorchEngine(qwen3, 1000, 4, 1, temperature), asked)
    counts = np.bincount([completion.tokens[0] for completion in finished.values()], minlength=24)
    expected = count * plain_logprobs(plain(qwen3), [*PROMPT, 0], temperature)[-1].exp().double().numpy()
    rare = expected < 5
    observed, expected = (np.append(part[~rare], part[rare].sum()) for part in (counts, expected))
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    assert statistic < chi2.ppf(0.999, len(expected) - 1), (observed, expected)


@torch.no_grad()
def test_later_tokens_have_the_model_s_frequencies_too(qwen3: Policy) -> None:
    """Pairs of tokens: the probability integral transform of the second token given the first is uniform. It would not
    be if a token's number were that of another token, or shared by the rows."""
    count = 4000
    finished = run(
        TorchEngine(qwen3, 500, 4, 2), [Request(PROMPT, derive_seed("pairs", n), n, 2) for n in range(count)]
    )
    pairs = np.array([completion.tokens for completion in finished.values() if len(completion.tokens) == 2])
    model, statistic, freedom = plain(qwen3), 0.0, 0
    for first in np.unique(pairs[:, 0]):
        second = np.bincount(pairs[pairs[:, 0] == first, 1], minlength=24)
        expected = second.sum() * plain_logprobs(model, [*PROMPT, int(first), 0])[-1].exp().double().numpy()
        common = expected >= 5
        if common.any():
            statistic += ((second[common] - expected[common]) ** 2 / expected[common]).sum()
            freedom += int(common.sum())
    assert freedom > 20
    assert statistic < chi2.ppf(0.999, freedom)


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_smallest_and_the_largest_number_pick_possible_tokens(
    fresh_qwen3: Policy, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    """The first and the last token have probability zero; the largest double below 1 is 1.0 in fp32."""
    logits = torch.zeros(24)
    logits[[0, 23]] = -200.0
    monkeypatch.setattr(fresh_qwen3, "logits", lambda hidden, temperature: logits.expand(len(hidden), 24))
    monkeypatch.setattr(
        "scalerl_mini.rollout.engines.torch_engine.uniform", lambda seeds, counters: np.full(len(seeds), number)
    )
    completion = run(TorchEngine(fresh_qwen3, 1, 4, 1), [Request(PROMPT, 0, 0, 1)])[0]
    assert completion.tokens.tolist() == [1 if number == 0 else 22]
    assert completion.logprobs[0] == pytest.approx(-np.log(22), abs=1e-5)


def test_requests_depend_on_run_role_prompt_epoch_and_sample_alone() -> None:
    factory = RequestFactory(3, 12, Interruption((4,), (4,), 2, 9))
    one = factory.make(PROMPT, "key", "train", 5, 1, 2)
    assert one == factory.make(PROMPT, "key", "train", 5, 1, 2)
    assert (one.prompt, one.key, one.max_new_tokens) == (PROMPT, "key", 12)
    changed = [
        RequestFactory(4, 12, factory.interruption).make(PROMPT, "key", "train", 5, 1, 2),
        factory.make(PROMPT, "key", "held-out", 5, 1, 2),
        factory.make(PROMPT, "key", "train", 6, 1, 2),
        factory.make(PROMPT, "key", "train", 5, 2, 2),
        factory.make(PROMPT, "key", "train", 5, 1, 3),
    ]
    assert len({request.seed for request in (one, *changed)}) == 6
    assert 2 <= one.thinking_budget <= 9
    assert RequestFactory(3, 12, None).make(PROMPT, "key", "train", 5, 1, 2).thinking_budget is None


def test_interruption_and_engine_follow_the_configuration(qwen3: Policy) -> None:
    options = InterruptionConfig(phrase=";</think>", think_end="</think>", min_tokens=3, max_tokens=5)
    config = RolloutConfig(slots=3, max_new_tokens=12, temperature=0.7, interruption=options)
    interruption = build_interruption(config, qwen3)
    assert interruption == Interruption(tuple(qwen3.encode(";</think>")), (4,), 3, 5)
    assert len(interruption.phrase) == 2
    engine = build_engine(config, qwen3, prompt_tokens=8)
    assert (engine.free, engine.temperature, engine.interruption) == (3, 0.7, interruption)
    off = config.model_copy(update={"interruption": InterruptionConfig(enabled=False)})
    assert build_interruption(off, qwen3) is None
