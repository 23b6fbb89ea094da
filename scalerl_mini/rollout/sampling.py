"""From the configuration to requests: token ids of prompts, limits, budgets and seeds of completions."""

from __future__ import annotations

from dataclasses import dataclass

from scalerl_mini.config_groups import RolloutConfig
from scalerl_mini.policy.model import Policy
from scalerl_mini.rollout.engines import Engine, Request, TorchEngine, VllmEngine
from scalerl_mini.rollout.engines.vllm_core import VllmCore
from scalerl_mini.rollout.interruption import Interruption
from scalerl_mini.seeds import derive_seed


def build_interruption(config: RolloutConfig, policy: Policy) -> Interruption | None:
    """The forced interruption in token ids of this policy, or None when it is off."""
    options = config.interruption
    if not options.enabled:
        return None
    phrase, end = policy.encode(options.phrase), policy.encode(options.think_end)
    return Interruption(tuple(phrase), tuple(end), options.min_tokens, options.max_tokens)


def build_engine(
    config: RolloutConfig, policy: Policy, prompt_tokens: int, beside_tokens: int = 0, device: str = "cpu"
) -> Engine:
    """The engine named by the configuration. prompt_tokens: longest prompt it will be given; beside_tokens: longest
    completion of an engine that is made `beside` it. device: vLLM's; the torch engine runs where its policy is."""
    interruption, limit = build_interruption(config, policy), config.max_new_tokens
    if config.engine == "torch":
        return TorchEngine(policy, config.slots, prompt_tokens, limit, config.temperature, interruption)
    core = VllmCore(policy, config.slots, prompt_tokens + max(limit, beside_tokens), config.temperature, device)
    return VllmEngine(core, policy, config.slots, prompt_tokens, limit, interruption)


@dataclass(frozen=True)
class RequestFactory:
    """Requests of one run. The seed of a completion depends on (run seed, role, prompt, epoch, sample), nothing else."""

    run_seed: int
    max_new_tokens: int
    interruption: Interruption | None

    def make(
        self, prompt: tuple[int, ...], key: tuple[int, int], role: str, index: int, epoch: int, sample: int
    ) -> Request:
        """One completion of a prompt. role: "train" or "held-out"; index: the prompt's place in its set."""
        seed = derive_seed(self.run_seed, role, index, epoch, sample)
        budget = self.interruption.budget(seed) if self.interruption else None
        return Request(prompt, seed, key, self.max_new_tokens, budget)
