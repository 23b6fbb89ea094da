"""A policy's parameters as flat byte arrays on the host: what the weight channel carries.

On the CPU the arrays *are* the parameters' memory, so a load is one copy out of shared memory and a publish one copy into
it. On a GPU they are pinned staging buffers, and `pull` and `push` cross to the device; weights with a LoRA adapter have a
buffer too, into which `pull` merges. Each parameter appears once under
its first name, so tied weights travel once and stay tied; nothing else is cached on either side (no fp32 copy of the
head), so after a push every later forward pass uses the new weights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scalerl_mini.policy.model import Policy


class WeightBytes:
    """`views`: name -> uint8 [nbytes], in the parameters' order, dtype and C layout."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.parameters = policy.named_tensors()
        self.host = {
            name: _host_buffer(parameter.data, own=name in policy.adapted)
            for name, parameter in self.parameters.items()
        }
        self.views: dict[str, np.ndarray] = {
            name: buffer.reshape(-1).view(torch.uint8).numpy() for name, buffer in self.host.items()
        }

    def pull(self) -> dict[str, np.ndarray]:
        """The current parameters; the arrays are valid until the next optimiser step."""
        self._copy(to_host=True)
        return self.views

    def push(self, version: int) -> None:
        """Make what was written into `views` the policy's parameters, of this version."""
        self._copy(to_host=False)
        self.policy.version = version

    def _copy(self, to_host: bool) -> None:
        for name, parameter in self.parameters.items():
            if self.host[name].data_ptr() != parameter.data_ptr():
                if to_host:
                    self.host[name].copy_(self.policy.merged(name, parameter.data))
                else:
                    parameter.data.copy_(self.host[name])


def _host_buffer(tensor: Tensor, own: bool) -> Tensor:
    """own: what is published is not the tensor itself."""
    if not own and tensor.device.type == "cpu" and tensor.is_contiguous():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
