"""A batch whose completions all reach the limit: the one that needs most memory."""

from __future__ import annotations

import numpy as np

from scalerl_mini.config import Config
from scalerl_mini.policy import Policy
from scalerl_mini.runtime.rollout_buffer import BufferShape
from scalerl_mini.training.batch import Batch, assemble

PROMPT_TOKENS = 20


def full_batch(policy: Policy, config: Config, seed: int = 0) -> Batch:
    """Random tokens; rewards alternate so that no group is filtered."""
    random, limit, size = np.random.default_rng(seed), config.rollout.max_new_tokens, config.rollout.group_size
    groups = config.pipeline.prompts_per_step
    records = np.zeros(groups, BufferShape(groups, size, PROMPT_TOKENS, limit).record)
    vocabulary = policy.head_weight.shape[0]
    records["prompt_length"], records["lengths"], records["mask"] = PROMPT_TOKENS, limit, True
    records["prompt"] = random.integers(0, vocabulary, records["prompt"].shape)
    records["tokens"] = random.integers(0, vocabulary, records["tokens"].shape)
    records["logprobs"] = -np.log(vocabulary)
    records["rewards"] = np.arange(size) % 2
    return assemble(list(records), config.objective)
