"""The compute meter: what the x axis of the law is made of. Evaluation and warm start are not training compute.

The paper counts GPU-hours of all GPUs, generators included, and does not say whether evaluation counts; here the clock
stands still while every process is evaluating. Tokens and FLOPs count what the trained batches cost: groups that were
generated ahead and are still in the buffer enter with the step that consumes them, so that the numbers of a step do not
depend on scheduling. The usual 2 FLOPs per parameter and token forward and 4 backward; the embedding table is a look-up
and not counted, attention scores are left out (under 5 % at these lengths).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from scalerl_mini.policy.model import Policy
from scalerl_mini.training.batch import Batch


def multiplied_parameters(policy: Policy) -> int:
    """Parameters that multiply each token: all but the input embedding, which counts only where it is also the head, and
    of the experts of a mixture only the share that a token passes through."""
    sizes = {name: tensor.numel() for name, tensor in policy.named_tensors().items()}
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    embedding = policy.model.get_input_embeddings().weight
    unused = 0 if embedding is policy.head_weight else embedding.numel()
    return sum(sizes.values()) - unused - round(experts * (1 - policy.active_experts))


@dataclass
class ComputeMeter:
    """Running totals of one run; `state` and `restore` carry them over a resume.

    devices: processes that hold a device, generators and trainer. parameters: see `multiplied_parameters`. passes: of 2
    FLOPs a parameter and trained token: forward, gradient of activations, and of weights unless they are frozen.
    """

    devices: int
    parameters: int
    passes: int = 3
    flops: float = 0.0
    generated_tokens: int = 0
    trained_tokens: int = 0
    seconds: float = 0.0
    _since: float | None = field(default=None, repr=False)

    @classmethod
    def of(cls, policy: Policy, devices: int) -> ComputeMeter:
        """The meter of a run that begins now."""
        return cls(devices, multiplied_parameters(policy), passes=2 if policy.adapters else 3)

    def start(self) -> None:
        """Let the clock run."""
        self._since = time.monotonic()

    def pause(self) -> None:
        """Stop the clock; harmless when it stands."""
        self.seconds = self.wall_seconds
        self._since = None

    @property
    def wall_seconds(self) -> float:
        """Seconds of training so far, evaluation excluded."""
        return self.seconds + (time.monotonic() - self._since if self._since is not None else 0.0)

    def add(self, batch: Batch, forward_tokens: int, trained_tokens: int) -> None:
        """Count one consumed batch. forward_tokens: tokens the trainer ran forward and backward, prompts included;
        trained_tokens: those whose gradient reached the weights, none when the step was skipped."""
        generated = int(batch.lengths.sum())
        self.generated_tokens += generated
        self.trained_tokens += trained_tokens
        self.flops += 2.0 * self.parameters * (generated + batch.prompt_tokens + self.passes * forward_tokens)

    def add_discarded(self, generated_tokens: int, prompt_tokens: int) -> None:
        """Count a group that was sampled and then replaced by dynamic sampling."""
        self.generated_tokens += generated_tokens
        self.flops += 2.0 * self.parameters * (generated_tokens + prompt_tokens)

    def row(self) -> dict[str, float]:
        """The compute columns of `evals.jsonl`."""
        return {
            "device_hours": self.devices * self.wall_seconds / 3600,
            "flops": self.flops,
            "generated_tokens": self.generated_tokens,
            "trained_tokens": self.trained_tokens,
            "wall_seconds": self.wall_seconds,
        }

    def state(self) -> dict[str, Any]:
        """Totals as plain JSON."""
        return {
            "flops": self.flops,
            "generated_tokens": self.generated_tokens,
            "trained_tokens": self.trained_tokens,
            "seconds": self.wall_seconds,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self.flops, self.seconds = state["flops"], state["seconds"]
        self.generated_tokens, self.trained_tokens = state["generated_tokens"], state["trained_tokens"]
