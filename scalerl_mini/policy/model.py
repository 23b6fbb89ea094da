"""The policy: a Hugging Face causal language model, its tokenizer, its version, and the two ways we run it.

The body runs unmodified on flat token rows; the head is computed by `policy.head` so that its precision is ours to
choose and the same on both sides. A model whose logits are more than `hidden @ W.T + b` (soft caps, scales) or whose
attention is not plain causal (sliding windows, chunks, rotary angles that depend on the batch) is refused at load,
because it would be scored wrongly, silently.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_layers import GradientCheckpointingLayer

from scalerl_mini.chat import chat_ids
from scalerl_mini.errors import UserError
from scalerl_mini.model_folder import check_model_folder
from scalerl_mini.policy.head import head_logits, token_logprobs
from scalerl_mini.policy.lora import Adapters, published_names
from scalerl_mini.policy.ragged_attention import ATTENTION_NAME, DecodeStep, PackedSequences

logger = logging.getLogger(__name__)
ADAPTERS = "lora.safetensors"


class Policy:
    """A causal language model with the number of optimiser steps applied to its weights (`version`).

    chat_template: prompts are asked as the user's message in the model's chat template.
    """

    def __init__(
        self, model: Any, tokenizer: Any, fp32_head: bool = True, version: int = 0, chat_template: bool = False
    ) -> None:
        self.model, self.tokenizer, self.chat_template = model, tokenizer, chat_template
        self.fp32_head, self.version = fp32_head, version
        head = model.get_output_embeddings()
        self.head_weight, self.head_bias = head.weight, getattr(head, "bias", None)
        self.body = model.base_model
        self.config = model.config
        self.adapters: Adapters | None = None

    @classmethod
    def load(
        cls,
        folder: str | Path,
        dtype: str = "float32",
        device: str = "cpu",
        fp32_head: bool = True,
        chat_template: bool = False,
    ) -> Policy:
        """Load model and tokenizer from a folder (or hub name). Raises UserError when it cannot be used."""
        if Path(folder).is_dir():
            check_model_folder(Path(folder))
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                attn_implementation=ATTENTION_NAME,
                use_safetensors=True,
                trust_remote_code=False,
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot load model {folder}: {str(error).splitlines()[0]}") from error
        _refuse_unsupported(model.config, str(folder))
        return cls(model.to(device).eval(), tokenizer, fp32_head, chat_template=chat_template)

    @property
    def device(self) -> torch.device:
        return self.head_weight.device

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every token id that ends a completion (generation config first, tokenizer as the fallback)."""
        eos = self.model.generation_config.eos_token_id
        eos = self.tokenizer.eos_token_id if eos is None else eos
        return frozenset([eos] if isinstance(eos, int) else eos or [])

    @property
    def active_experts(self) -> float:
        """Share of its experts that a token passes through: 1 for a dense model.

        Two rounding-close router scores may choose differently in generator and trainer, so single log-probabilities of a
        mixture can differ by far more than rounding (2510.11370 replays the choices; we do not).
        """
        experts = getattr(self.config, "num_experts", None) or getattr(self.config, "num_local_experts", None)
        return self.config.num_experts_per_tok / experts if experts else 1.0

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with no special token added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def prompt_ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a task's prompt: as it stands, or in the chat template. Raises UserError when that fails."""
        return tuple(chat_ids(self.tokenizer, text) if self.chat_template else self.encode(text))

    def decode(self, ids: Any) -> str:
        """Text of token ids, special tokens kept (`</think>` and the end token are part of what is graded)."""
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def hidden_states(self, ids: Tensor, positions: Tensor, layout: PackedSequences | DecodeStep) -> Tensor:
        """Last hidden state of each token of a flat row: ids [N], positions [N] -> [N, D]."""
        output = self.body(input_ids=ids[None], position_ids=positions[None], use_cache=False, layout=layout)
        return output.last_hidden_state[0]

    def logits(self, hidden: Tensor, temperature: float) -> Tensor:
        """fp32 logits at a temperature: [N, D] -> [N, V]."""
        return head_logits(hidden, self.head_weight, self.head_bias, temperature, self.fp32_head)

    def score(self, ids: Tensor, lengths: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of chosen tokens, given whole sequences.

        ids: [N] tokens of all sequences one after another; lengths: [S]; targets: [M] indices into ids, none the first
        token of its sequence. Returns logprobs [M] (differentiable) and entropy [M] (nats).
        """
        layout = PackedSequences(lengths)
        hidden = self.hidden_states(ids, layout.positions, layout)
        return token_logprobs(
            hidden[targets - 1], self.head_weight, self.head_bias, ids[targets], temperature, self.fp32_head
        )

    def checkpoint_activations(self) -> None:
        """Keep only the layers' inputs for the backward pass, and compute each layer again there.

        Transformers does so in training mode only. That is set for the layers themselves and nothing in them, so that
        dropout stays off. Raises UserError for an architecture that cannot.
        """
        layers = [module for module in self.model.modules() if isinstance(module, GradientCheckpointingLayer)]
        if not self.model.supports_gradient_checkpointing or not layers:
            raise UserError(
                f"training.gradient_checkpointing = true, but {self.config.model_type} has none; set it to false"
            )
        options = {"use_reentrant": False, "preserve_rng_state": False}
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        for layer in layers:
            layer.training = True

    def add_adapters(self, rank: int, alpha: float, targets: str, seed: int) -> None:
        """From now on only LoRA adapters are trained (`policy.lora`); what the policy computes stays the same at first."""
        self.adapters = Adapters(self.model, rank, alpha, targets, seed)

    def restore_adapters(self, folder: Path) -> None:
        """Go on with the adapters of a folder that `save` has written."""
        assert self.adapters is not None
        self.adapters.restore(load_file(folder / ADAPTERS))

    def named_tensors(self) -> dict[str, Tensor]:
        """Every parameter once, by name; tied weights appear under one name and stay tied. Of a model with adapters: the
        frozen ones, under the names of the model without them; `merged` is what others should see."""
        tensors = dict(self.model.named_parameters())
        return published_names(tensors) if self.adapters else tensors

    def trained_tensors(self) -> dict[str, Tensor]:
        """What the optimiser changes: every parameter, or the adapters alone."""
        return self.adapters.trained if self.adapters else self.named_tensors()

    @property
    def adapted(self) -> Collection[str]:
        """Names of the weights that have an adapter."""
        return self.adapters.layers if self.adapters else ()

    def merged(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor of that name as it is published: with its adapter, if it has one."""
        return self.adapters.merged(name) if self.adapters and name in self.adapted else tensor

    def save(self, folder: Path) -> None:
        """Write a plain Hugging Face folder (safetensors, config, tokenizer), loadable without this package. Adapters are
        merged into it, and written beside it for `restore_adapters`."""
        if self.adapters:
            whole = published_names(self.model.state_dict())
            self.model.save_pretrained(
                folder, state_dict={name: self.merged(name, tensor) for name, tensor in whole.items()}
            )
            save_file({name: tensor.detach() for name, tensor in self.adapters.trained.items()}, folder / ADAPTERS)
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config.pop("_attn_implementation", None)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _refuse_unsupported(config: Any, name: str) -> None:
    for key in ("final_logit_softcapping", "attn_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, key, None) not in (None, 1, 1.0):
            raise UserError(
                f"model {name}: {key} = {getattr(config, key)} is not supported; use a Llama- or Qwen-type model"
            )
    mixed = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    if not mixed and getattr(config, "layer_types", None) is None and getattr(config, "sliding_window", None):
        mixed = [f"sliding_window = {config.sliding_window}"]
    if mixed:
        raise UserError(
            f"model {name}: {', '.join(mixed)} is not supported; use a model with full attention in all layers"
        )
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    if rope_type in ("dynamic", "longrope"):  # angles that depend on the longest sequence of a batch
        raise UserError(f"model {name}: rope_type = {rope_type} is not supported; use a model with fixed rotary angles")
