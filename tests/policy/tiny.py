"""Tiny random policies of the supported families, and the same weights in a plain `transformers` model."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, Qwen2Config, Qwen3Config

from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import ATTENTION_NAME
from scalerl_mini.warmstart.tokenizer import VOCABULARY, build_tokenizer

FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
EOS = VOCABULARY["<eos>"]


@dataclass(frozen=True)
class Tiny:
    """What a tiny model looks like; grouped-query attention by default."""

    family: str = "qwen3"
    tied: bool = False
    heads: int = 4
    kv_heads: int = 2
    layers: int = 2
    hidden: int = 32
    dtype: str = "float32"
    seed: int = 0


def tiny_policy(tiny: Tiny) -> Policy:
    """A random policy over the 24 tokens of the built-in task; its distributions are far from uniform."""
    config = FAMILIES[tiny.family](
        vocab_size=len(VOCABULARY),
        hidden_size=tiny.hidden,
        intermediate_size=48,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        num_key_value_heads=tiny.kv_heads,
        head_dim=tiny.hidden // 4,
        max_position_embeddings=128,
        initializer_range=0.25,
        tie_word_embeddings=tiny.tied,
        pad_token_id=VOCABULARY["<pad>"],
        bos_token_id=VOCABULARY["<bos>"],
        eos_token_id=EOS,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(tiny.seed)
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, tiny.dtype), attn_implementation=ATTENTION_NAME
        )
        for parameter in model.parameters():  # norms and biases too, so that none of them may be forgotten
            parameter.data += 0.05 * torch.randn(parameter.shape).to(parameter.dtype)
    return Policy(model.eval(), build_tokenizer())


def plain(policy: Policy, attention: str = "eager") -> Any:
    """The policy's weights of this moment in an unmodified `transformers` model of its own."""
    model = copy.deepcopy(policy.model)
    model.set_attn_implementation(attention)
    return model


def plain_logprobs(model: Any, ids: list[int], temperature: float = 1.0) -> Tensor:
    """Log-probabilities [len(ids) - 1, V] of the next token after each token but the last; one sequence, no padding."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    return (logits / temperature).log_softmax(-1)


def mixed_cache_logprobs(old: Any, new: Any, ids: list[int], fed_to_old: int, temperature: float) -> Tensor:
    """Log-probabilities [len(ids) - 1, V] when the first `fed_to_old` tokens are run by `old`, and each later one by
    `new` on the keys and values that `old` left behind."""
    cache = DynamicCache(config=old.config)
    first = old(input_ids=torch.tensor([ids[:fed_to_old]]), past_key_values=cache, use_cache=True).logits[0]
    rest = [
        new(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True).logits[0]
        for token in ids[fed_to_old:-1]
    ]
    return (torch.cat([first, *rest]) / temperature).log_softmax(-1)


@torch.no_grad()
def shift_weights(policy: Policy, seed: int, scale: float = 0.05) -> None:
    """An 'optimiser step': every parameter moves, in place, and the version goes up by one."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.model.parameters():
        parameter += scale * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    policy.version += 1
