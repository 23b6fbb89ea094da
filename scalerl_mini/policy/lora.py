"""LoRA through `peft`: frozen weights, and beside each chosen linear layer a product of two thin matrices that is trained.

    trainer     W x + s B A x           B begins at zero, so version 0 is the start model; s = alpha / rank
    published   W + s B A               merged in fp32 and rounded to the body's precision: generators know nothing of it

With an fp32 body the two differ by rounding (1e-6). With a 16-bit body the merged weight is rounded where the trainer's sum
is not; that gap is part of the importance ratio, as every gap between the sides is. Adapters have the body's precision; the
optimiser keeps fp32 masters of them as of any 16-bit weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scalerl_mini.errors import UserError

ALL_LINEAR = "all-linear"  # every linear layer but the head


class Adapters:
    """The adapters of one model, put into it in place. layers: name of a weight -> the layer of `peft` around it."""

    def __init__(self, model: Any, rank: int, alpha: float, targets: str, seed: int) -> None:
        """targets: ends of layer names separated by commas, or ALL_LINEAR. Raises UserError when they do not fit."""
        from peft import LoraConfig, inject_adapter_in_model

        names = targets if targets == ALL_LINEAR else [name.strip() for name in targets.split(",")]
        dtype = model.dtype
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                options: Any = {"r": rank, "lora_alpha": alpha, "target_modules": names}
                inject_adapter_in_model(LoraConfig(**options), model)
            except ValueError as error:
                reason = str(error).partition("\n")[0]
                raise UserError(f"model.lora_targets = {targets!r} does not fit the model: {reason}") from error
        self.layers = {f"{name}.weight": module for name, module in model.named_modules() if hasattr(module, "lora_A")}
        ends = (model.get_output_embeddings(), model.get_input_embeddings())
        if any(module is end for module in self.layers.values() for end in ends):
            raise UserError(f"model.lora_targets = {targets!r} names the head or the embedding; leave it away")
        self.trained = {
            name.replace(".default.", "."): parameter for name, parameter in model.named_parameters() if _added(name)
        }
        for parameter in self.trained.values():
            parameter.data = parameter.data.to(dtype)

    @property
    def ranks(self) -> int:
        """Sum of the ranks of all adapters."""
        return sum(layer.lora_A["default"].weight.shape[0] for layer in self.layers.values())

    def merged(self, name: str) -> Tensor:
        """The weight as a model without adapters would have it, in a tensor of its own."""
        layer = self.layers[name]
        first, second = layer.lora_A["default"].weight.detach(), layer.lora_B["default"].weight.detach()
        weight = layer.base_layer.weight.detach()
        return (weight.float() + layer.scaling["default"] * (second.float() @ first.float())).to(weight.dtype)

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue with adapters that were saved from `trained`."""
        for name, parameter in self.trained.items():
            parameter.copy_(tensors[name])


def published_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model with adapters under the names that they had before, the adapters left away."""
    return {name.replace(".base_layer.", "."): tensor for name, tensor in tensors.items() if not _added(name)}


def _added(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name
