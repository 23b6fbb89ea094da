"""The check before a run, over the real vLLM: a sound engine passes, planted faults are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scalerl_mini.errors import WouldComeAgain
from scalerl_mini.policy import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.engine_check import EngineGap, check_engine
from scalerl_mini.rollout.engines import VllmEngine, vllm_core
from scalerl_mini.rollout.vllm_package import CPU_HEAD_DIMS
from scalerl_mini.runtime.weight_channel import checksum
from tests.policy.tiny import shift_weights
from tests.rollout.sampling_support import PROMPTS
from tests.vllm.real_engine import endless_policy, real_engine


def check(engine: VllmEngine, policy: Policy, temperature: float = 1.0) -> EngineGap:
    return check_engine(engine, policy, PROMPTS, temperature, checksum(WeightBytes(policy).pull().values()))


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def policy(request: pytest.FixtureRequest) -> Policy:
    return endless_policy(request.param)


def test_a_sound_engine_passes_and_so_does_a_second_version(policy: Policy) -> None:
    engine = real_engine(policy)
    assert check(engine, policy).mean < 1e-4
    shift_weights(policy, 1)
    assert check(engine, policy).mean < 1e-4


def test_stale_weights_are_refused(policy: Policy) -> None:
    engine = real_engine(policy)
    check(engine, policy)
    shift_weights(policy, 1)
    engine.core.version = policy.version  # it believes to have them
    with pytest.raises(WouldComeAgain, match="does not run the weights of version 1"):
        check(engine, policy)


def test_a_stale_head_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens on the CPU when the head of a tied model is not sent under its own name."""
    policy = endless_policy(True)
    whole = vllm_core.checkpoint_tensors

    def without_head(policy: Policy) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in whole(policy).items() if not name.startswith("lm_head")}

    monkeypatch.setattr(vllm_core, "checkpoint_tensors", without_head)
    with pytest.raises(WouldComeAgain, match="does not run the weights"):
        check(real_engine(policy), policy)


def test_another_temperature_is_refused(policy: Policy) -> None:
    with pytest.raises(WouldComeAgain, match="does not run the weights"):
        check(real_engine(policy, temperature=0.7), policy)


def test_the_wrong_head_dtype_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that does not know `head_dtype` would compute logits in bf16."""
    from vllm import EngineArgs

    plain_init: Any = EngineArgs.__init__

    def forgetful(self: Any, *arguments: Any, **options: Any) -> None:
        options.pop("hf_overrides")
        plain_init(self, *arguments, **options)

    monkeypatch.setattr(EngineArgs, "__init__", forgetful)
    policy = endless_policy(False, "bfloat16")
    assert policy.fp32_head
    with pytest.raises(WouldComeAgain, match="logits in bfloat16 where float32 is configured"):
        real_engine(policy)


def test_the_list_of_head_dimensions_is_that_of_the_installed_vllm() -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    assert list(CPU_HEAD_DIMS) == CPUAttentionBackend.get_supported_head_sizes()
