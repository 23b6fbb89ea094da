"""A head with more rows than the tokenizer has tokens, as published models have: sampled, scored, decoded to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import TorchEngine
from scalerl_mini.warmstart.tokenizer import VOCABULARY
from tests.policy.tiny import Tiny, tiny_policy
from tests.rollout.sampling_support import requests, rescore, run

ROWS = 64


@pytest.mark.parametrize("tied", [False, True])
def test_tokens_that_the_tokenizer_does_not_know(tied: bool) -> None:
    small = tiny_policy(Tiny(tied=tied))
    small.model.resize_token_embeddings(ROWS, mean_resizing=False)
    policy = Policy(small.model, small.tokenizer)
    assert (policy.head_weight is policy.model.get_input_embeddings().weight) == tied
    asked = requests(16, limit=12)
    finished = run(TorchEngine(policy, 16, 16, 12), asked)
    unknown = 0
    for request in asked:
        completion = finished[request.key]
        np.testing.assert_allclose(
            completion.logprobs, rescore(policy, request.prompt, completion, 1.0).numpy(), atol=1e-5
        )
        known = [token for token in completion.tokens.tolist() if token < len(VOCABULARY)]
        assert policy.decode(completion.tokens) == policy.decode(known)
        unknown += len(completion.tokens) - len(known)
    assert unknown > 0, "none was sampled, so nothing was shown"
