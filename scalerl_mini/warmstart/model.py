"""A Qwen3 small enough for two CPU cores: an untrained model of the stock architecture, so any engine can load it.

The mixture of experts (Qwen3-MoE) activates as many feed-forward columns a token as the tiny model has, out of twice as
many. Its router has no load-balancing loss: the warm start learns by imitation alone, reinforcement learning by reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from scalerl_mini.warmstart.tokenizer import VOCABULARY


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Widths and depth of a model. The head is not tied to the embedding; attention is grouped-query.

    experts: feed-forward networks of width `feed_forward` a layer, of which each token uses `active`; 0 for a dense model.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    experts: int = 0
    active: int = 0


SIZES = {
    "tiny": ModelSize(hidden=96, layers=3, heads=3, kv_heads=1, head_width=32, feed_forward=256),
    "micro": ModelSize(hidden=64, layers=2, heads=2, kv_heads=1, head_width=32, feed_forward=160),
    "moe": ModelSize(hidden=96, layers=3, heads=3, kv_heads=1, head_width=32, feed_forward=128, experts=4, active=2),
}


def build_model(size: ModelSize, seed: int) -> PreTrainedModel:
    """An untrained fp32 model; its weights depend on `seed` alone (the global random state is left alone)."""
    common: dict[str, Any] = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_width,
        "intermediate_size": size.feed_forward,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "initializer_range": 0.05,
        "tie_word_embeddings": False,
        "pad_token_id": VOCABULARY["<pad>"],
        "bos_token_id": VOCABULARY["<bos>"],
        "eos_token_id": VOCABULARY["<eos>"],
        "dtype": "float32",
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _mixture(common, size) if size.experts else Qwen3ForCausalLM(Qwen3Config(**common))
    model.generation_config = GenerationConfig(
        pad_token_id=VOCABULARY["<pad>"],
        bos_token_id=VOCABULARY["<bos>"],
        eos_token_id=VOCABULARY["<eos>"],
        do_sample=True,
    )
    return model


def _mixture(common: dict[str, Any], size: ModelSize) -> Qwen3MoeForCausalLM:
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **common,
            moe_intermediate_size=size.feed_forward,
            num_experts=size.experts,
            num_experts_per_tok=size.active,
            norm_topk_prob=True,
            output_router_logits=False,
            router_aux_loss_coef=0.0,
        )
    )
