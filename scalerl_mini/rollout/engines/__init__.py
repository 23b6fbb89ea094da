"""Generation engines behind one protocol: torch and vLLM here, a fake one in the tests.

`vllm_core` alone imports vLLM, when an engine of it is built.
"""

from scalerl_mini.rollout.engines.base import Engine, Finished, Request
from scalerl_mini.rollout.engines.torch_engine import TorchEngine
from scalerl_mini.rollout.engines.vllm_engine import VllmEngine

__all__ = ["Engine", "Finished", "Request", "TorchEngine", "VllmEngine"]
