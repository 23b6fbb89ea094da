"""The printed memory estimate against the measured peak of a trainer's steps, each configuration in a process of its own.

    python -m tests.bench.bench_memory [--only WORDS]

A random model is written to a folder; the process loads torch, takes two steps with a model of one tiny layer so that all
libraries are warm, and notes its resident memory. Then it loads the model as the trainer does, takes two steps on batches
whose completions all reach the limit (the second has the optimiser's moments from the start), and reads the high-water mark
of its resident memory. What the steps took above the start is compared with the estimate. The shared memory of the weight
channel, which is every process's, is not touched.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

TOLERANCE = 0.15
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """model: what differs from a Qwen3 of 8 layers, or {} for the built-in one; settings: what differs from the default."""

    name: str
    model: dict[str, int | bool | str]
    settings: tuple[str, ...] = ()


SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
WIDE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
}
LONG = (
    "rollout.max_new_tokens=384",
    "rollout.group_size=4",
    "pipeline.prompts_per_step=2",
    "training.micro_batch_tokens=2048",
    "rollout.interruption.enabled=false",
)
CASES = (
    Case("built-in model, default job", {}),
    Case("Qwen3 33 M, fp32", {**SMALL, "vocab_size": 8192}, LONG),
    Case("Qwen3 33 M, bf16", {**SMALL, "vocab_size": 8192}, (*LONG, "model.dtype=bfloat16")),
    Case("Qwen3 33 M, checkpointing", {**SMALL, "vocab_size": 8192}, (*LONG, "training.gradient_checkpointing=true")),
    Case("Qwen3 33 M, one micro-batch", {**SMALL, "vocab_size": 8192}, (*LONG, "training.micro_batch_tokens=4096")),
    Case("Llama 77 M, fp32", {**WIDE, "vocab_size": 4096, "family": "llama", "num_hidden_layers": 6}, LONG),
    Case(
        "Qwen2 80k vocabulary, tied, fp32",
        {**SMALL, "vocab_size": 80_000, "family": "qwen2", "num_hidden_layers": 4, "tie_word_embeddings": True},
        LONG,
    ),
    Case(
        "Qwen2 80k vocabulary, bf16",
        {**SMALL, "vocab_size": 80_000, "family": "qwen2", "num_hidden_layers": 4},
        (*LONG, "model.dtype=bfloat16"),
    ),
)


def build(model: dict[str, int | bool | str], folder: Path) -> Path:
    """A random model with the tokenizer of the built-in one."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

    from scalerl_mini.training.preflight import resolve_model
    from scalerl_mini.warmstart.tokenizer import build_tokenizer

    if not model:
        return resolve_model("builtin:tiny-adder")
    options = {"num_hidden_layers": 8, "tie_word_embeddings": False, "max_position_embeddings": 2048} | model
    family = {"qwen3": Qwen3Config, "llama": LlamaConfig, "qwen2": Qwen2Config}[str(options.pop("family", "qwen3"))]
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(family(**options)).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def measured(folder: Path, settings: tuple[str, ...]) -> dict[str, float]:
    """Estimate and measured peak of two steps in this process, which does nothing else, in MiB."""
    import torch

    from scalerl_mini.config import load_config
    from scalerl_mini.policy import Policy
    from scalerl_mini.training.heap import give_back_freed_blocks
    from scalerl_mini.training.learner import Learner
    from scalerl_mini.training.memory import estimate
    from scalerl_mini.training.optimizer import Optimizer
    from tests.bench.full_batch import PROMPT_TOKENS, full_batch
    from tests.policy.tiny import Tiny, tiny_policy

    torch.set_num_threads(1)
    config = load_config(None, settings)
    if config.training.gradient_checkpointing:
        give_back_freed_blocks()

    def steps(policy: Policy) -> None:
        if config.training.gradient_checkpointing:
            policy.checkpoint_activations()
        learner = Learner(policy, Optimizer(policy.named_tensors(), config.training), config)
        for seed in range(2):
            learner.update(full_batch(policy, config, seed))

    steps(tiny_policy(Tiny(layers=1, hidden=16, dtype=config.model.dtype)))
    start = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    policy = Policy.load(folder, config.model.dtype)
    parameters = sum(tensor.numel() for tensor in policy.named_tensors().values())
    steps(policy)
    found = estimate(policy, config, PROMPT_TOKENS)
    return {"measured": (_resident("VmHWM") - start) / MIB, "estimate": found.peak / MIB, "parameters": parameters}


def _resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def in_a_process(case: Case) -> dict[str, float]:
    """`measured` of a case, in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="scalerl-memory-") as place:
        made = [sys.executable, "-m", "tests.bench.bench_memory", "--build", json.dumps(case.model), place]
        model = subprocess.run(made, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        command = [sys.executable, "-m", "tests.bench.bench_memory", "--measure", model, *case.settings]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    options = parser.parse_args()
    if options.build:
        print(build(json.loads(options.build[0]), Path(options.build[1])))
        return
    if options.measure:
        print(json.dumps(measured(Path(options.measure[0]), tuple(options.measure[1:]))))
        return
    print("| configuration | parameters | estimate MiB | measured MiB | estimate / measured |\n|---|---|---|---|---|")
    missed = []
    for case in CASES:
        if options.only in case.name:
            found = in_a_process(case)
            gap = found["estimate"] / found["measured"] - 1
            sizes = f"{found['parameters'] / 1e6:.1f} M | {found['estimate']:.0f} | {found['measured']:.0f}"
            print(f"| {case.name} | {sizes} | {gap:+.1%} |", flush=True)
            missed += [case.name] if abs(gap) > TOLERANCE else []
    sys.exit(f"more than {TOLERANCE:.0%} off: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
