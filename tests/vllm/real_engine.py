"""A `VllmEngine` over the real vLLM, as small as the tests need it."""

from __future__ import annotations

from scalerl_mini.policy import Policy
from scalerl_mini.rollout.engines import VllmEngine
from scalerl_mini.rollout.engines.vllm_core import VllmCore
from scalerl_mini.rollout.interruption import Interruption
from tests.policy.tiny import Tiny, tiny_policy

PROMPT_TOKENS, COMPLETION_TOKENS = 64, 48


def real_engine(
    policy: Policy, slots: int = 4, interruption: Interruption | None = None, temperature: float = 1.0
) -> VllmEngine:
    """For prompts of up to 64 and completions of up to 48 tokens."""
    core = VllmCore(policy, slots, PROMPT_TOKENS + COMPLETION_TOKENS, temperature)
    return VllmEngine(core, policy, slots, PROMPT_TOKENS, COMPLETION_TOKENS, interruption)


def endless_policy(tied: bool, dtype: str = "float32") -> Policy:
    """A random policy that never samples an end token; heads of 32 dimensions, as vLLM's CPU attention refuses 8."""
    policy = tiny_policy(Tiny("qwen3", tied=tied, hidden=128, dtype=dtype))
    policy.model.generation_config.eos_token_id = []
    return policy
