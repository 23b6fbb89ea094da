"""The estimate of the trainer's memory: activations are what autograd keeps, and the peak is what a process measures."""

from __future__ import annotations

import pytest
import torch

from scalerl_mini.config import Config, load_config
from scalerl_mini.policy import Policy
from scalerl_mini.training.activations import INDEX, Shape
from scalerl_mini.training.memory import Load, estimate
from tests.bench.bench_memory import TOLERANCE, Case, in_a_process
from tests.policy.tiny import Tiny, tiny_policy

LENGTHS, UNTRAINED = (7, 7, 7), 3  # sequences, and tokens of each that are no targets


def kept_by_autograd(policy: Policy) -> int:
    """Bytes of all distinct tensors, parameters excepted, that a forward pass keeps for the backward pass."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)  # held, so that no address is used twice
        return tensor

    total = sum(LENGTHS)
    targets = torch.tensor([place for place in range(total) if place % LENGTHS[0] >= UNTRAINED])
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        policy.score(torch.arange(total) % 20, torch.tensor(LENGTHS), targets, 1.0)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in parameters)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 4)])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_activations_are_what_autograd_keeps(family: str, heads: int, kv_heads: int, dtype: str) -> None:
    policy = tiny_policy(Tiny(family, heads=heads, kv_heads=kv_heads, layers=3, hidden=64, dtype=dtype))
    total, trained = sum(LENGTHS), len(LENGTHS) * (LENGTHS[0] - UNTRAINED)
    counted = Shape.of(policy).kept(total, total, trained, checkpointing=False)
    assert counted == pytest.approx(kept_by_autograd(policy), rel=0.005)


def test_with_checkpointing_they_are_the_inputs_of_the_layers() -> None:
    policy = tiny_policy(Tiny(layers=3, hidden=64))
    policy.checkpoint_activations()
    total, trained = sum(LENGTHS), len(LENGTHS) * (LENGTHS[0] - UNTRAINED)
    shape = Shape.of(policy)
    handed_on = total * (
        2 * shape.size * shape.head_dim + INDEX
    )  # angles and places, which a layer is called with again
    counted = shape.kept(total, total, trained, checkpointing=True)
    assert counted == kept_by_autograd(policy) + handed_on


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_beside_adapters_autograd_keeps_less_of_the_norms(dtype: str) -> None:
    pytest.importorskip("peft")
    policy = tiny_policy(Tiny(layers=3, hidden=64, dtype=dtype))
    policy.add_adapters(4, 8.0, "all-linear", seed=0)
    total, trained = sum(LENGTHS), len(LENGTHS) * (LENGTHS[0] - UNTRAINED)
    counted = Shape.of(policy).kept(total, total, trained, checkpointing=False)
    kept = kept_by_autograd(policy)
    assert kept <= counted <= 1.05 * kept  # the very first norm needs no gradient and keeps nothing


def test_moments_in_8_bits_are_counted() -> None:
    fp32, small = (
        estimate(tiny_policy(Tiny(hidden=128)), load_config(None, settings), 20).parts["optimiser"]
        for settings in ((), ("training.optimizer=adamw_8bit", "training.eps=1e-8"))
    )
    assert small < 0.4 * fp32  # norms, biases and the tables of small matrices stay


def parts(*settings: str, **tiny: object) -> dict[str, int]:
    return estimate(tiny_policy(Tiny(**tiny)), load_config(None, settings), prompt_tokens=20).parts  # type: ignore[arg-type]


def test_activations_grow_with_the_micro_batch_and_end_with_the_batch() -> None:
    half, whole, more = (
        parts(f"training.micro_batch_tokens={tokens}")["activations"] for tokens in (71 * 50, 71 * 100, 10**6)
    )
    assert whole == pytest.approx(2 * half, rel=0.01)
    assert more == pytest.approx(128 / 100 * whole, rel=0.01)  # 16 groups of 8


def test_one_micro_batch_begins_without_gradients() -> None:
    load = Load.of(Config(), prompt_tokens=20)
    assert (load.rows, load.only, load.tokens, load.targets) == (115, False, 115 * 71, 115 * 51)
    assert Load.of(load_config(None, ("training.micro_batch_tokens=10000",)), 20).only


def test_masters_of_a_bf16_body_are_counted() -> None:
    full, rounded = parts(), parts("model.dtype=bfloat16", dtype="bfloat16")
    assert (full["masters"], rounded["weights"]) == (0, full["weights"] / 2)
    assert rounded["masters"] == full["weights"]
    assert rounded["gradients"] == full["gradients"]


def test_the_line_names_parts_and_their_sum() -> None:
    line = str(estimate(tiny_policy(Tiny()), Config(), 20))
    assert line.startswith("memory: at most about ")
    assert "activations" in line
    assert "masters" not in line  # there are none


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["false", "true"])
def test_the_estimate_is_the_measured_peak(checkpointing: str) -> None:
    settings = ("training.micro_batch_tokens=4096", f"training.gradient_checkpointing={checkpointing}")
    found = in_a_process(Case("built-in model", {}, settings))
    assert found["estimate"] == pytest.approx(found["measured"], rel=TOLERANCE), found
