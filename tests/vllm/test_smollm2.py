"""SmolLM2 over both engines, greedy and in fp32: the same tokens, but for near ties that rounding may decide either way."""

from __future__ import annotations

import itertools

import pytest
import torch

from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import PackedSequences
from scalerl_mini.rollout.engines import Request, TorchEngine
from tests.rollout.sampling_support import run
from tests.smollm2 import QUESTIONS, make_model_module, needs_package
from tests.vllm.real_engine import COMPLETION_TOKENS, PROMPT_TOKENS, real_engine

pytestmark = needs_package
ALMOST_GREEDY = 1e-6  # the torch engine has no temperature of 0; logits that differ by 1e-4 differ by 100 here
NEAR_TIE = 1e-3  # logits so close may be ordered by the rounding of a matrix product


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    make_model_module().make_model(folder)
    policy = Policy.load(folder, chat_template=True)
    policy.model.generation_config.eos_token_id = []  # all completions have the same length
    return policy


@torch.inference_mode()
def gap(policy: Policy, ids: list[int], one: int, other: int) -> float:
    """Logit of `one` minus that of `other` after `ids`, by a forward pass over the whole."""
    positions = torch.arange(len(ids))
    hidden = policy.hidden_states(torch.tensor(ids), positions, PackedSequences(torch.tensor([len(ids)])))
    logits = policy.logits(hidden[-1:], 1.0)[0]
    return float(logits[one] - logits[other])


def test_both_engines_answer_fifty_questions_alike(policy: Policy, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [policy.prompt_ids(question) for question in QUESTIONS]
    asked = [Request(prompt, 0, (index, 0), COMPLETION_TOKENS) for index, prompt in enumerate(prompts)]
    count = len(asked)
    ours = run(TorchEngine(policy, count, PROMPT_TOKENS, COMPLETION_TOKENS, ALMOST_GREEDY), asked)
    theirs = run(real_engine(policy, count, temperature=0), asked)
    gaps = []
    for request in asked:
        one, other = (finished[request.key].tokens.tolist() for finished in (ours, theirs))
        assert len(one) == len(other) == COMPLETION_TOKENS
        if one != other:
            same = [a for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True))]
            at = len(same)
            gaps.append(gap(policy, [*request.prompt, *same], one[at], other[at]))
            with capsys.disabled():
                print(f"\n{QUESTIONS[request.key[0]]} - token {at}: {policy.decode([one[at]])!r} here, ", end="")
                print(f"{policy.decode([other[at]])!r} with vLLM, logits {gaps[-1]:.1e} apart", end="")
    with capsys.disabled():
        print(f"\n{count - len(gaps)} of {count} completions of {COMPLETION_TOKENS} tokens are the same")
    assert all(abs(value) < NEAR_TIE for value in gaps), gaps
    assert len(gaps) <= count // 10
