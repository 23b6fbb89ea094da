"""AdamW with fp32 master weights, linear warm-up and gradient clipping (paper section 4).

With a bf16 body the optimiser updates fp32 copies and rounds them back after each step: at learning rates of 5e-7 an
update of a bf16 weight would be rounded away. Gradients of micro-batches are summed in fp32 for the same reason: the small
terms of a long sum would be lost in bf16. With an fp32 body the masters are the parameters themselves.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scalerl_mini.config_groups import TrainingConfig


class Optimizer:
    """`collect` after each backward pass, then `step`, which applies the gradients and clears them."""

    def __init__(self, parameters: dict[str, Tensor], config: TrainingConfig) -> None:
        self.parameters, self.config = parameters, config
        self.masters = {
            name: parameter if parameter.dtype == torch.float32 else parameter.detach().float().requires_grad_()
            for name, parameter in parameters.items()
        }
        self.adamw = torch.optim.AdamW(
            self.masters.values(), lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay
        )
        self.updates = 0

    @property
    def lr(self) -> float:
        """Learning rate of the next update: linear over the warm-up steps, then constant."""
        return self.config.lr * min(1.0, (self.updates + 1) / max(self.config.warmup_steps, 1))

    def collect(self) -> None:
        """Add the gradients that lie in the parameters' `.grad` to those of the masters."""
        for name, master in self.masters.items():
            parameter = self.parameters[name]
            if master is not parameter and parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def step(self) -> float:
        """One update; returns the gradient norm before clipping. When it is not finite nothing is updated: weights,
        moments and `updates` stay as they are, and the gradients are thrown away."""
        self.collect()
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.masters.values()), self.config.grad_clip))
        if not math.isfinite(norm):
            self.discard()
            return norm
        for group in self.adamw.param_groups:
            group["lr"] = self.lr
        self.adamw.step()
        self.updates += 1
        self._round_back()
        self.discard()
        return norm

    def discard(self) -> None:
        """Throw the collected gradients away."""
        for name, parameter in self.parameters.items():
            parameter.grad = None
            self.masters[name].grad = None

    @torch.no_grad()
    def _round_back(self) -> None:
        for name, parameter in self.parameters.items():
            if self.masters[name] is not parameter:
                parameter.copy_(self.masters[name])

    def not_finite(self) -> str | None:
        """Name of a weight, moment or master that holds a number that is not finite; None when all are sound."""
        everything = (*self.parameters.items(), *self.tensors().items())
        return next((name for name, tensor in everything if not bool(torch.isfinite(tensor).all())), None)

    def tensors(self) -> dict[str, Tensor]:
        """Moments and, for a bf16 body, masters, as named tensors for a safetensors file."""
        state = self.adamw.state_dict()["state"]
        out: dict[str, Tensor] = {}
        for index, (name, master) in enumerate(self.masters.items()):
            if master is not self.parameters[name]:
                out[f"master.{name}"] = master.detach()
            for key, value in state.get(index, {}).items():
                out[f"{key}.{name}"] = value
        return out

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], updates: int) -> None:
        """Continue from `tensors()` after `updates` updates."""
        state: dict[int, dict[str, Tensor]] = {}
        for index, (name, master) in enumerate(self.masters.items()):
            if f"master.{name}" in tensors:
                master.copy_(tensors[f"master.{name}"])
            keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in tensors]
            if keys:
                state[index] = {key: tensors[f"{key}.{name}"] for key in keys}
        self.adamw.load_state_dict({"state": state, "param_groups": self.adamw.state_dict()["param_groups"]})
        self.updates = updates
