"""The trainer's memory by size of the model, from the estimate alone: the table of docs/hardware.md.

    python -m tests.bench.memory_by_model

The models exist only as shapes (torch's meta device), so nothing of their size is needed.
"""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from scalerl_mini.config import load_config
from scalerl_mini.policy import Policy
from scalerl_mini.policy.ragged_attention import ATTENTION_NAME
from scalerl_mini.training.memory import estimate

PROMPT_TOKENS = 256
VOCABULARY = 151_936
MODELS = {  # layers, hidden, MLP, heads, heads of keys and values, vocabulary, head tied to the embedding
    "Qwen2.5-0.5B": (24, 896, 4864, 14, 2, VOCABULARY, True),
    "Qwen2.5-1.5B": (28, 1536, 8960, 12, 2, VOCABULARY, True),
    "Qwen2.5-3B": (36, 2048, 11_008, 16, 2, VOCABULARY, True),
    "Qwen2.5-7B": (28, 3584, 18_944, 28, 4, 152_064, False),
}
COMMON = (
    "model.dtype=bfloat16",
    "rollout.max_new_tokens=1024",
    "rollout.group_size=16",
    "pipeline.prompts_per_step=48",
)
CHECKPOINTING = "training.gradient_checkpointing=true"
EIGHT_BIT = ("training.optimizer=adamw_8bit", "training.eps=1e-8")
SMALL, LARGE = "training.micro_batch_tokens=4096", "training.micro_batch_tokens=16384"
WAYS = {
    "16k tokens": (LARGE,),
    "4k tokens": (SMALL,),
    "checkpointing, 16k": (LARGE, CHECKPOINTING),
    "checkpointing, 4k": (SMALL, CHECKPOINTING),
    "checkpointing, 4k, 8-bit": (SMALL, CHECKPOINTING, *EIGHT_BIT),
    "checkpointing, 4k, LoRA 32": (SMALL, CHECKPOINTING, "model.lora_rank=32"),
}


def shape_of(name: str) -> Policy:
    """A policy whose tensors have no memory."""
    layers, hidden, mlp, heads, kv_heads, vocabulary, tied = MODELS[name]
    config = Qwen2Config(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=ATTENTION_NAME)
    return Policy(model, tokenizer=None)


def main() -> None:
    print(f"| GiB, bf16 body | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}")
    for name in MODELS:
        cells = []
        for settings in WAYS.values():
            config, policy = load_config(None, (*COMMON, *settings)), shape_of(name)
            if config.model.lora_rank:
                policy.add_adapters(config.model.lora_rank, config.model.lora_alpha, config.model.lora_targets, 0)
            cells.append(f"{estimate(policy, config, PROMPT_TOKENS).peak / 2**30:.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
