"""Generation engines behind one protocol: the torch engine here, a fake one in the tests, vLLM later."""

from scalerl_mini.rollout.engines.base import Engine, Finished, Request
from scalerl_mini.rollout.engines.torch_engine import TorchEngine

__all__ = ["Engine", "Finished", "Request", "TorchEngine"]
