"""What the trainer will need, said before it starts: weights, gradients, optimiser, activations of a micro-batch."""

from __future__ import annotations

from scalerl_mini.config import Config
from scalerl_mini.policy.head import CHUNK_ELEMENTS
from scalerl_mini.policy.model import Policy

MIB = 1024**2
ACTIVATIONS_PER_LAYER = 24  # tensors of hidden size kept a token and layer for the backward pass, MLP included


def estimate(policy: Policy, config: Config, prompt_tokens: int) -> str:
    """One line with the trainer's peak memory by part, in MiB."""
    tensors = policy.named_tensors().values()
    weights = sum(tensor.nbytes for tensor in tensors)
    parameters = sum(tensor.numel() for tensor in tensors)
    masters = 0 if config.model.dtype == "float32" else 4 * parameters
    longest = prompt_tokens + config.rollout.max_new_tokens
    batch = config.pipeline.prompts_per_step * config.rollout.group_size * longest
    tokens = min(max(config.training.micro_batch_tokens, longest), batch)
    layers = policy.config.num_hidden_layers
    kept = layers + ACTIVATIONS_PER_LAYER if config.training.gradient_checkpointing else layers * ACTIVATIONS_PER_LAYER
    width = policy.config.hidden_size * kept
    parts = {
        "weights": weights,
        "gradients": weights + masters,
        "optimiser": 8 * parameters + masters,
        "activations": tokens * width * policy.head_weight.element_size(),
        "head": 3 * 4 * min(CHUNK_ELEMENTS, tokens * policy.head_weight.shape[0]),
    }
    total = sum(parts.values()) / MIB
    listed = ", ".join(f"{name} {size / MIB:.1f}" for name, size in parts.items())
    return f"memory: about {total:.0f} MiB for the trainer ({listed}), Python and torch not counted"
