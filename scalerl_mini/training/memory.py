"""What the trainer will need at most, said before it starts.

    peak = what is always there (weights, masters, moments)
         + the larger of      backward   gradients so far + all activations + what the head or a layer works with
                              update     all gradients + AdamW's temporaries
         + what the heap keeps of freed blocks (on the CPU, without checkpointing; `training.heap`)

For batches whose completions all reach the limit; shorter ones need less. Python, torch and what lies in shared memory are
not counted. Activations are counted tensor by tensor (`training.activations`); the figures were compared with measured peaks
on a CPU only (`tests/bench/bench_memory.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from scalerl_mini.config import Config
from scalerl_mini.policy.head import CHUNK_ELEMENTS
from scalerl_mini.policy.model import Policy
from scalerl_mini.training.activations import FP32, Shape
from scalerl_mini.training.heap import KEPT_SHARE

MIB = 1024**2
LEAST_8BIT = 4096  # numbers of a parameter whose moments bitsandbytes keeps in 8 bits


@dataclass(frozen=True)
class Estimate:
    """Bytes by part at the moment of the peak."""

    parts: dict[str, int]

    @property
    def peak(self) -> int:
        return sum(self.parts.values())

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {size / MIB:.1f}" for name, size in self.parts.items() if size)
        return (
            f"memory: at most about {self.peak / MIB:.0f} MiB for the trainer ({listed}), Python and torch not counted"
        )


@dataclass(frozen=True)
class Load:
    """The largest micro-batch. tokens: of its `rows` completions with their prompts; targets: those that are trained."""

    rows: int
    longest: int
    limit: int
    only: bool

    @classmethod
    def of(cls, config: Config, prompt_tokens: int) -> Load:
        limit = config.rollout.max_new_tokens
        longest = prompt_tokens + limit
        batch = config.pipeline.prompts_per_step * config.rollout.group_size
        rows = min(max(1, config.training.micro_batch_tokens // longest), batch)
        return cls(rows, longest, limit, only=rows == batch)

    @property
    def tokens(self) -> int:
        return self.rows * self.longest

    @property
    def targets(self) -> int:
        return self.rows * self.limit


def estimate(policy: Policy, config: Config, prompt_tokens: int) -> Estimate:
    """The trainer's peak. prompt_tokens: length of the longest prompt."""
    tensors = policy.named_tensors()
    sizes = [tensor.numel() for tensor in policy.trained_tensors().values()]
    parameters = sum(sizes)
    rounded = policy.body.dtype.itemsize < FP32  # then masters, and gradients of theirs, are fp32 copies
    always = {
        "weights": sum(parameter.nbytes for parameter in policy.model.parameters()),
        "merged": sum(tensors[name].nbytes for name in policy.adapted),  # what is published, beside what is trained
        "masters": FP32 * parameters if rounded else 0,
        "optimiser": sum(map(_moments_8bit if config.training.optimizer == "adamw_8bit" else _moments, sizes)),
    }
    load, shape = Load.of(config, prompt_tokens), Shape.of(policy)
    checkpointing = config.training.gradient_checkpointing
    backward = {
        "gradients": 0 if load.only else FP32 * parameters,
        "activations": shape.kept(load.tokens, load.tokens, load.targets, checkpointing),
        "working": max(_head(shape, load, config), _layer(shape, load, checkpointing)),
    }
    update = {"gradients": FP32 * parameters, "working": _adamw(sizes, policy.device.type)}
    peak = max(backward, update, key=lambda parts: sum(parts.values()))
    kept = 0 if checkpointing or policy.device.type != "cpu" else round(KEPT_SHARE * sum(peak.values()))
    return Estimate(always | peak | {"heap": kept})


def _head(shape: Shape, load: Load, config: Config) -> int:
    """Logits of a chunk and their gradient, the gradients of weight and hidden states, and an fp32 copy of a 16-bit head."""
    chunk = FP32 * min(max(CHUNK_ELEMENTS, shape.vocabulary), load.targets * shape.vocabulary)
    weight = FP32 * shape.vocabulary * shape.hidden
    copies = (not shape.frozen) + (shape.size < FP32)
    return 2 * chunk + copies * weight + load.targets * shape.size * shape.hidden


def _layer(shape: Shape, load: Load, checkpointing: bool) -> int:
    """Gradients of the two halves of the MLP and of the hidden states; with checkpointing, also what the layer kept."""
    inside = shape.layer(load.tokens, load.tokens) if checkpointing else 0
    return inside + load.tokens * shape.size * (2 * shape.intermediate + shape.hidden)


def _moments(size: int) -> int:
    return 2 * FP32 * size


def _moments_8bit(size: int) -> int:
    """A byte a number, an fp32 scale a block of 256 and a table of 256 fp32 numbers; small parameters stay in fp32."""
    return 2 * (size + FP32 * (size // 256 + 256)) if size >= LEAST_8BIT else _moments(size)


def _adamw(sizes: list[int], device: str) -> int:
    """Two temporaries of the parameter at hand; on a GPU torch updates all parameters at once."""
    return FP32 * (2 * max(sizes) if device == "cpu" else sum(sizes))
