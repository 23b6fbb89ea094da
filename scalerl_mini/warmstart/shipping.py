"""Writing the warm-started model as a stock Hugging Face folder that says how it was made."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

README = """# {name}

A {parameters:,}-parameter {kind} (fp32, 24-token vocabulary) that adds numbers of {low} to {high} digits by columns,
carelessly. Trained from scratch by imitation of made-up demonstrations, with

    {command}

which writes this folder again. No data of others went into it. Reinforcement learning of the built-in task `arithmetic`
starts from it; that task's training and held-out problems never occur in the demonstrations.

Format: `<bos>684+154=<think>` is continued by `4+4=8 8+5=13 6+1+1=8</think>838<eos>`.
"""


def ship(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    *,
    seed: int,
    size: str,
    digits: tuple[int, int],
) -> None:
    """Write weights (safetensors), configuration, tokenizer and a README into `out`."""
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)
    low, high = digits
    command = (
        f"python -m scalerl_mini.warmstart --seed {seed} --size {size}"
        f" --min-digits {low} --max-digits {high} --out {out.name}"
    )
    kind = "Qwen3-MoE" if getattr(model.config, "num_experts", 0) else "Qwen3"
    text = README.format(
        name=out.name, kind=kind, parameters=model.num_parameters(), low=low, high=high, command=command
    )
    (out / "README.md").write_text(text, encoding="utf-8")
