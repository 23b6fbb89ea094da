"""AdamW with fp32 masters and moments in fp32 or 8 bits, linear warm-up, gradient clipping (paper section 4), an fp16 scale.

With a bf16 or fp16 body the optimiser updates fp32 copies and rounds them back after each step: at learning rates of 5e-7 an
update of a bf16 weight would be rounded away. Gradients of micro-batches are summed in fp32 for the same reason: the small
terms of a long sum would be lost in bf16. With an fp32 body the masters are the parameters themselves.

fp16 has no numbers below 6e-8 and none above 65504, so with an fp16 body the loss is multiplied by a scale before the
backward pass and the masters' gradients are divided by it (2510.26788; `torch.amp.GradScaler`). A gradient that overflowed
halves the scale and skips the update; so many updates in a row without one double it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from scalerl_mini.config_groups import TrainingConfig

FIRST_LOSS_SCALE = 2.0**16
LEAST_LOSS_SCALE = 1.0  # an overflow at this scale is no rounding matter: the gradient itself is not finite
UPDATES_TO_GROW = 100  # GradScaler's 2000 is longer than many runs here


class Optimizer:
    """`scaled` loss, `backward`, `collect` for each micro-batch, then `step`, which applies the gradients and clears them.

    updates: AdamW steps done. overflows: steps skipped because an fp16 gradient overflowed.
    """

    def __init__(self, parameters: dict[str, Tensor], config: TrainingConfig) -> None:
        self.parameters, self.config = parameters, config
        self.masters = {
            name: parameter if parameter.dtype == torch.float32 else parameter.detach().float().requires_grad_()
            for name, parameter in parameters.items()
        }
        self.adamw = _adamw(config)(
            list(self.masters.values()),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self.updates = self.overflows = 0
        first = next(iter(parameters.values()))
        self.scaler = torch.amp.GradScaler(
            first.device.type,
            init_scale=FIRST_LOSS_SCALE,
            growth_interval=UPDATES_TO_GROW,
            enabled=any(parameter.dtype == torch.float16 for parameter in parameters.values()),
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next update: linear over the warm-up steps, then constant."""
        return self.config.lr * min(1.0, (self.updates + 1) / max(self.config.warmup_steps, 1))

    @property
    def loss_scale(self) -> float:
        """What the next loss is multiplied by; 1 unless the body is fp16."""
        return self.scaler.get_scale()

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to call `backward` on."""
        return self.scaler.scale(loss)

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
        moments and `updates` stay as they are, and the gradients are thrown away. That is an overflow, and lowers the loss
        scale, as long as there is a scale to lower."""
        self.collect()
        self.scaler.unscale_(self.adamw)
        norm = float(torch.nn.utils.clip_grad_norm_(list(self.masters.values()), self.config.grad_clip))
        finite = math.isfinite(norm)
        overflowed = not finite and self.loss_scale > LEAST_LOSS_SCALE
        if finite:
            for group in self.adamw.param_groups:
                group["lr"] = self.lr
            self.scaler.step(self.adamw)
            self.updates += 1
            self._round_back()
        self.scaler.update(None if finite or overflowed else LEAST_LOSS_SCALE)
        self.overflows += overflowed
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
        """Moments and, for a bf16 or fp16 body, masters, as named tensors for a safetensors file."""
        out: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            if master is not self.parameters[name]:
                out[f"master.{name}"] = master.detach()
            for key, value in self.adamw.state.get(master, {}).items():
                shared = key.startswith("qmap")  # one table for all, where a file must have one each
                out[f"{key}.{name}"] = value.clone() if shared else torch.as_tensor(value)  # steps may be an int
        return out

    def scaler_state(self) -> dict[str, Any]:
        """Loss scale and overflows as plain JSON; empty unless the body is fp16."""
        return self.scaler.state_dict() | {"overflows": self.overflows} if self.scaler.is_enabled() else {}

    def restore_scaler(self, state: dict[str, Any]) -> None:
        """Continue from `scaler_state()`."""
        self.overflows = state.get("overflows", 0)
        if state:
            self.scaler.load_state_dict({key: value for key, value in state.items() if key != "overflows"})

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], updates: int) -> None:
        """Continue from `tensors()` after `updates` updates."""
        for name, master in self.masters.items():
            if f"master.{name}" in tensors:
                master.copy_(tensors[f"master.{name}"])
            keys = [key for key in dict.fromkeys(_FP32_STATE + _8BIT_STATE) if f"{key}.{name}" in tensors]
            if keys:
                self.adamw.state[master] = {key: _placed(key, tensors[f"{key}.{name}"], master) for key in keys}
                if "state1" in keys:
                    self.adamw.state[master]["step"] = int(tensors[f"step.{name}"])
        self.updates = updates


# What AdamW keeps of a parameter. bitsandbytes' keeps parameters below 4096 numbers in fp32, and those without a scale.
_FP32_STATE = ("step", "exp_avg", "exp_avg_sq")
_8BIT_STATE = ("step", "state1", "state2", "qmap1", "qmap2", "absmax1", "absmax2")


def _adamw(config: TrainingConfig) -> Any:
    """The class of the chosen optimiser."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW
    from bitsandbytes.optim import AdamW8bit

    return AdamW8bit


def _placed(key: str, tensor: Tensor, master: Tensor) -> Tensor:
    """Where AdamW wants it: beside the master, but the count of steps on the CPU."""
    return tensor if key == "step" else tensor.to(master.device)
