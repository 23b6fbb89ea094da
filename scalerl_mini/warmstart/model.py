"""A Qwen3 small enough for two CPU cores: an untrained model of the stock architecture, so any engine can load it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from scalerl_mini.warmstart.tokenizer import VOCABULARY


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Widths and depth of a model. The head is not tied to the embedding; attention is grouped-query."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int


SIZES = {
    "tiny": ModelSize(hidden=96, layers=3, heads=3, kv_heads=1, head_width=32, feed_forward=256),
    "micro": ModelSize(hidden=64, layers=2, heads=2, kv_heads=1, head_width=32, feed_forward=160),
}


def build_model(size: ModelSize, seed: int) -> Qwen3ForCausalLM:
    """An untrained fp32 model; its weights depend on `seed` alone (the global random state is left alone)."""
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_width,
        intermediate_size=size.feed_forward,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.05,
        tie_word_embeddings=False,
        pad_token_id=VOCABULARY["<pad>"],
        bos_token_id=VOCABULARY["<bos>"],
        eos_token_id=VOCABULARY["<eos>"],
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        pad_token_id=VOCABULARY["<pad>"],
        bos_token_id=VOCABULARY["<bos>"],
        eos_token_id=VOCABULARY["<eos>"],
        do_sample=True,
    )
    return model
