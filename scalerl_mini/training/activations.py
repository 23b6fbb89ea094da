"""What a decoder of Llama or Qwen type keeps for the backward pass, tensor by tensor, in bytes.

A layer keeps, of N tokens of `size` bytes a number (D hidden, I intermediate, Q = heads x head_dim, K likewise of keys and
values, P the places of the padded layout inside attention):

    both RMSNorms         D in fp32, the reciprocal root in fp32, the normalised D, and their output, which linears read
    norms of q and k      the same over Q and K, where the model has them (Qwen3); their output is not kept
    attention             q, k, v before padding; padded q, k, v (keys repeated for each query head) and output, P each;
                          the log-sum-exp in fp32; what the output projection reads
    adapters              what the first of the two matrices gives; norms then keep no normalised tensor
    MLP                   gate, its activation, up, and their product, which the down projection reads

`tests/training/test_memory.py` counts the same through `torch.autograd.graph.saved_tensors_hooks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scalerl_mini.policy.model import Policy

FP32 = 4
INDEX = 8  # bytes of an int64


@dataclass(frozen=True)
class Shape:
    """What of a model decides its activations. size: bytes of a number of the body. frozen: only adapters are trained, of
    ranks that add up to `adapters`."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    norms_heads: bool
    size: int
    frozen: bool
    adapters: int

    @classmethod
    def of(cls, policy: Policy) -> Shape:
        config: Any = policy.config
        intermediate = config.intermediate_size
        if policy.active_experts < 1:  # every expert that a token passes through keeps its own
            intermediate = config.num_experts_per_tok * getattr(config, "moe_intermediate_size", intermediate)
        return cls(
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=intermediate,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            vocabulary=policy.head_weight.shape[0],
            norms_heads=any(name.endswith("q_norm.weight") for name in policy.named_tensors()),
            size=policy.head_weight.element_size(),
            frozen=policy.adapters is not None,
            adapters=policy.adapters.ranks if policy.adapters else 0,
        )

    def norm(self, width: int, groups: int = 1) -> int:
        """Kept of one token by an RMSNorm over `width` numbers in `groups` groups, its output not counted."""
        normalised = 0 if self.frozen else self.size  # read by the gradient of the norm's own weight
        return (FP32 + normalised) * width + FP32 * groups

    def layer(self, tokens: int, places: int) -> int:
        """Kept by one layer."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        flat = 2 * (self.norm(self.hidden) + self.size * self.hidden)
        if self.norms_heads:
            flat += self.norm(query, self.heads) + self.norm(key, self.kv_heads)
        flat += self.size * (query + 2 * key) + self.size * query
        flat += self.size * 4 * self.intermediate
        return tokens * flat + places * (4 * self.size * query + FP32 * self.heads)

    def ends(self, tokens: int, targets: int) -> int:
        """Kept before the first and after the last layer: token ids, places and rotary angles; the last norm; the hidden
        states that the head reads, and the ids and places of its targets."""
        first = tokens * (2 * INDEX + 2 * self.size * self.head_dim)
        return first + tokens * self.norm(self.hidden) + targets * (self.size * self.hidden + 2 * INDEX)

    def kept(self, tokens: int, places: int, targets: int, checkpointing: bool) -> int:
        """All that is kept at the end of the forward pass; with checkpointing, of layers their inputs only."""
        a_layer = tokens * self.size * self.hidden if checkpointing else self.layer(tokens, places)
        inside_adapters = 0 if checkpointing else tokens * self.size * self.adapters
        return self.layers * a_layer + inside_adapters + self.ends(tokens, targets)
