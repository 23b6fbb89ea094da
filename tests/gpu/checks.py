"""The checks of check.sh, one a call: `python -m tests.gpu.checks NAME`. The last line printed is what was found.

Exit 0: as it should be; 77: cannot be checked here, the last line says why. On a CPU (DEVICE=cpu) all but what asks the GPU
itself is done as well, which is all that has been run so far.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from scalerl_mini.config import Config, load_config
from scalerl_mini.gpu import found_gpus, use
from scalerl_mini.policy import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.engine_check import check_engine
from scalerl_mini.rollout.engines import TorchEngine
from scalerl_mini.rollout.vllm_package import installed_vllm
from scalerl_mini.runtime import run_prefix, unlink_all
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel, checksum
from scalerl_mini.tasks import load_task
from scalerl_mini.training.learner import Learner
from scalerl_mini.training.memory import MIB, estimate
from scalerl_mini.training.optimizer import Optimizer
from scalerl_mini.training.preflight import resolve_model
from scalerl_mini.training.row_log import read_rows
from tests.bench.full_batch import PROMPT_TOKENS, full_batch

DEVICE = os.environ.get("DEVICE", "cuda:0")
ON_GPU = DEVICE != "cpu"


def skip(reason: str) -> NoReturn:
    print(reason)
    sys.exit(77)


def policy(dtype: str = "float32", device: str = DEVICE) -> Policy:
    return Policy.load(resolve_model("builtin:tiny-adder"), dtype, device)


def device() -> str:
    """torch sees the GPU, and it computes in bf16."""
    if not ON_GPU:
        skip("DEVICE=cpu")
    gpu = found_gpus()[torch.device(DEVICE).index or 0]
    product = torch.ones(64, 64, dtype=torch.bfloat16, device=DEVICE) @ torch.ones(64, 64, dtype=torch.bfloat16).to(
        DEVICE
    )
    assert product.float().mean().item() == 64
    return (
        f"{gpu.name}, {gpu.free_bytes / 2**30:.1f} of {gpu.total_bytes / 2**30:.1f} GiB free, torch {torch.__version__}"
    )


def weights() -> str:
    """Device -> (pinned) host -> shared memory -> (pinned) host -> device: every byte arrives."""
    sender, receiver = (WeightBytes(policy("bfloat16")) for _ in range(2))
    with torch.no_grad():
        for parameter in sender.parameters.values():
            parameter.add_(torch.randn_like(parameter))
    assert all(buffer.is_pinned() for buffer in sender.host.values()) == ON_GPU
    manifest = [TensorSpec(name, "bfloat16", tuple(t.shape), t.nbytes) for name, t in sender.parameters.items()]
    prefix = run_prefix()
    try:
        channel = WeightChannel.create(f"{prefix}.weights", manifest, Path.cwd())
        channel.publish(1, sender.pull())
        version, published = channel.read(receiver.views)
        receiver.push(version)
    finally:
        unlink_all(prefix, Path.cwd())
    for name, parameter in receiver.parameters.items():
        assert parameter.device == torch.device(DEVICE)
        assert torch.equal(parameter, sender.parameters[name]), name
    assert checksum(receiver.pull().values()) == published
    return f"{len(manifest)} tensors, {'pinned' if ON_GPU else 'not pinned'}"


def learner() -> str:
    """One fp32 step on the device and on the CPU: the same loss, gradient norm and weights, but for rounding."""
    config = Config()
    results = []
    for where in ("cpu", DEVICE):
        trained = policy(device=where)
        steps = Learner(trained, Optimizer(trained.trained_tensors(), config.training), config)
        metrics, _ = steps.update(full_batch(trained, config))
        results.append((metrics["loss"], metrics["grad_norm"], trained.head_weight.detach().cpu()))
    (loss, norm, head), (other_loss, other_norm, other_head) = results
    np.testing.assert_allclose([other_loss, other_norm], [loss, norm], rtol=1e-2)
    gap = (head - other_head).abs().max().item()
    assert gap < 3 * config.training.lr
    return f"loss {other_loss:.6f}, on the CPU {loss:.6f}; gradient norm {other_norm:.5f}, {norm:.5f}"


def engine() -> str:
    """The torch engine's log-probabilities are the policy's, in fp32 and bf16."""
    found = []
    for dtype in ("float32", "bfloat16"):
        sampled = policy(dtype)
        prompts = [sampled.prompt_ids(prompt.text) for prompt in load_task("arithmetic").train[:64]]
        runs = TorchEngine(sampled, 64, max(map(len, prompts)), 51)
        gap = check_engine(runs, sampled, prompts, 1.0, checksum(WeightBytes(sampled).pull().values()))
        found.append(f"{dtype} {gap.mean:.1e} (at most {gap.largest:.1e})")
    return f"mean gap {', '.join(found)}"


def memory() -> str:
    """The estimate against the allocator's own high-water mark."""
    if not ON_GPU:
        skip("the CPU's is tests/bench/bench_memory.py")
    found = []
    for dtype in ("float32", "bfloat16"):
        config = load_config(None, (f"model.dtype={dtype}",))
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        trained = policy(dtype)
        steps = Learner(trained, Optimizer(trained.trained_tensors(), config.training), config)
        for seed in range(2):
            steps.update(full_batch(trained, config, seed))
        peak = torch.cuda.max_memory_allocated() - before
        ratio = estimate(trained, config, PROMPT_TOKENS).peak / peak
        found.append(f"{dtype} {peak / MIB:.0f} MiB, estimate / measured {ratio:.2f}")
        assert 0.7 < ratio < 1.5, found
        del trained, steps
    return "; ".join(found)


def adamw_8bit() -> str:
    """Three updates with moments in 8 bits."""
    if importlib.util.find_spec("bitsandbytes") is None:
        skip("bitsandbytes is not installed")
    config = load_config(None, ("training.optimizer=adamw_8bit", "training.eps=1e-8"))
    trained = policy("bfloat16")
    optimizer = Optimizer(trained.trained_tensors(), config.training)
    steps = Learner(trained, optimizer, config)
    for seed in range(3):
        metrics, _ = steps.update(full_batch(trained, config, seed))
        assert metrics["skipped"] is None
    assert optimizer.not_finite() is None
    kept = sum(tensor.dtype == torch.uint8 for tensor in optimizer.tensors().values())
    assert kept
    return f"{kept} moments in 8 bits"


RUNS: dict[str, tuple[str, ...]] = {
    "bf16": ("model.dtype=bfloat16",),
    "fp32": ("pipeline.k=0",),
    "lora": ("model.dtype=bfloat16", "model.lora_rank=8", "training.lr=1e-3"),
    "vllm": ("rollout.engine=vllm", "model.dtype=bfloat16"),
}


def run(name: str, folder: str) -> str:
    """A whole run, generator and trainer on the device: the self-check passes, lag is bounded, the pass rate rises."""
    if name == "lora" and importlib.util.find_spec("peft") is None:
        skip("peft is not installed")
    if name == "vllm" and (not (found := installed_vllm()) or ("cpu" in "".join(found)) == ON_GPU):
        skip(f"no vLLM for {DEVICE} is installed")
    steps = 40 if ON_GPU else 4
    settings = (
        *RUNS[name],
        f"training.steps={steps}",
        "evaluation.prompts=200",
        "evaluation.samples=2",
        f"evaluation.early_every={steps}",
        f"runtime.generator_device={DEVICE}",
        f"runtime.trainer_device={DEVICE}",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "scalerl_mini", "train", "--out", folder, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0
    assert "self-check" in done.stdout
    rows, evaluations = read_rows(Path(folder, "steps.jsonl")), read_rows(Path(folder, "evals.jsonl"))
    assert len(rows) == steps
    assert max(row["lag_max"] for row in rows) <= 4
    assert json.loads(Path(folder, "run.json").read_text())["device"] == DEVICE
    first, last = evaluations[0]["pass_rate"], evaluations[-1]["pass_rate"]
    assert last > first + 0.1 or not ON_GPU
    gap = next(row["logprob_gap_mean"] for row in rows if row["logprob_gap_mean"] is not None)
    return f"{steps} steps, pass rate {first:.3f} to {last:.3f}, first mean gap {gap:.1e}"


CHECKS = {one.__name__: one for one in (device, weights, learner, engine, memory, adamw_8bit, run)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    use(DEVICE)
    print(CHECKS[sys.argv[1]](*sys.argv[2:]))
