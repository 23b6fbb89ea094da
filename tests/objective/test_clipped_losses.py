"""The rival losses, the extra importance correction and the KL term: values by hand and finite differences in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from scalerl_mini.objective import LOSSES, policy_loss

ONE = torch.ones(1, 1, dtype=torch.bool)


def one_token(kind: str, ratio: float, advantage: float, **options: Any) -> tuple[float, float, dict[str, float]]:
    """Term to maximise, its derivative in log pi, and metrics, of a single token of log-probability -1."""
    logprobs = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
    behavior = logprobs.detach() - math.log(ratio)
    result = policy_loss(
        logprobs, behavior, torch.tensor([advantage]).double(), ONE.double(), ONE, kind=kind, **options
    )
    result.loss.backward()
    return -result.loss.item(), -logprobs.grad.item(), result.metrics


# kind, constants, lower and upper clip
CLIPS = [
    ("grpo", {"eps": 0.2}, 0.8, 1.2),
    ("dapo", {"eps_low": 0.2, "eps_high": 0.26}, 0.8, 1.26),
    ("dapo", {}, 0.8, 1.26),
    ("gspo", {"eps_low": 0.003, "eps_high": 0.005}, 0.997, 1.005),
]


@pytest.mark.parametrize(("kind", "constants", "low", "high"), CLIPS)
def test_the_pessimistic_bound_by_hand(kind: str, constants: dict[str, float], low: float, high: float) -> None:
    """A good token gains nothing above the upper clip, a bad one nothing below the lower; the other two stay free."""
    inside = 1.001
    for advantage in (2.0, -3.0):
        term, slope, metrics = one_token(kind, inside, advantage, **constants)
        assert (term, slope) == pytest.approx((inside * advantage, inside * advantage))
        assert metrics["capped_sum"] == 0
    term, slope, metrics = one_token(kind, high + 0.1, 2.0, **constants)
    assert (term, slope) == pytest.approx((2 * high, 0.0))
    assert (metrics["capped_sum"], metrics["capped_positive_sum"]) == (1, 1)
    term, slope, metrics = one_token(kind, low - 0.1, -3.0, **constants)
    assert (term, slope) == pytest.approx((-3 * low, 0.0))
    assert (metrics["capped_sum"], metrics["capped_positive_sum"]) == (1, 0)
    for ratio, advantage in ((high + 0.1, -3.0), (low - 0.1, 2.0)):
        term, slope, metrics = one_token(kind, ratio, advantage, **constants)
        assert (term, slope) == pytest.approx((ratio * advantage, ratio * advantage))
        assert metrics["capped_sum"] == 0


@pytest.mark.parametrize("kind", ["grpo", "dapo", "gspo"])
def test_on_policy_every_loss_has_the_gradient_of_reinforce(kind: str) -> None:
    for advantage in (1.5, -0.5):
        assert one_token(kind, 1.0, advantage)[1] == pytest.approx(one_token("reinforce", 1.0, advantage)[1])


def test_gspo_by_hand() -> None:
    """Log ratios .3 and -.1 (a third token is masked): s = e^.1 for both tokens; d term / d log pi = A s / 2 a token."""
    logprobs = torch.tensor([[-1.0, -2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    behavior = logprobs.detach() - torch.tensor([[0.3, -0.1, 9.0]])
    mask = torch.tensor([[True, True, False]])
    weights = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
    wide = {"kind": "gspo", "eps_low": 0.5, "eps_high": 0.5}
    result = policy_loss(logprobs, behavior, torch.tensor([2.0]).double(), weights, mask, **wide)
    result.loss.backward()
    s = math.exp(0.1)
    assert result.loss.item() == pytest.approx(-(0.25 + 0.75) * 2 * s)
    assert logprobs.grad[0].tolist() == pytest.approx([-2 * s / 2, -2 * s / 2, 0.0])


def random_case() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (5, 4)
    logprobs = -2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 0.1
    mask = torch.rand(shape, generator=generator) < 0.7
    mask[0] = False
    return {
        "logprobs": logprobs,
        "behavior_logprobs": logprobs + 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64),
        "advantages": torch.randn(5, generator=generator, dtype=torch.float64),
        "weights": torch.rand(shape, generator=generator, dtype=torch.float64),
        "mask": mask,
    }


def loss_at(case: dict[str, Tensor], **options: Any) -> Tensor:
    return policy_loss(**case, **options).loss


def gradient(case: dict[str, Tensor], **options: Any) -> Tensor:
    leaf = case["logprobs"].clone().requires_grad_()
    loss_at(case | {"logprobs": leaf}, **options).backward()
    return leaf.grad


REFERENCE = random_case()["logprobs"].flip(0)
DIFFERENTIABLE = [
    {"kind": "grpo"},
    {"kind": "dapo"},
    {"kind": "gspo", "eps_low": 0.1, "eps_high": 0.1},
    {"kind": "grpo", "reference_logprobs": REFERENCE, "kl_coefficient": 0.3},
    {"kind": "reinforce", "reference_logprobs": REFERENCE, "kl_coefficient": 1.0},
]


@pytest.mark.parametrize(
    "options", DIFFERENTIABLE, ids=lambda options: "-".join(map(str, (options["kind"], len(options))))
)
def test_gradients_match_finite_differences(options: dict[str, Any]) -> None:
    """All of these are the derivative of their own value (CISPO is not: its ratio is held)."""
    case, numeric = random_case(), torch.zeros(5, 4, dtype=torch.float64)
    for place in range(20):
        step = torch.zeros(5, 4, dtype=torch.float64)
        step.view(-1)[place] = 1e-6
        up, down = (loss_at(case | {"logprobs": case["logprobs"] + s}, **options) for s in (step, -step))
        numeric.view(-1)[place] = (up - down) / 2e-6
    assert torch.allclose(gradient(case, **options), numeric, atol=1e-8)


def test_the_kl_term_by_hand() -> None:
    """pi = e^-1, reference e^-1.5: d = -.5, k3 = e^-.5 - 1 + .5; its derivative in log pi is 1 - e^-.5."""
    reference = torch.tensor([[-1.5]], dtype=torch.float64)
    plain, slope, _ = one_token("reinforce", 1.0, 2.0)
    term, pulled, _ = one_token("reinforce", 1.0, 2.0, reference_logprobs=reference, kl_coefficient=0.1)
    assert term == pytest.approx(plain - 0.1 * (math.exp(-0.5) - 0.5))
    assert pulled == pytest.approx(slope - 0.1 * (1 - math.exp(-0.5)))
    same = torch.tensor([[-1.0]], dtype=torch.float64)
    assert one_token("reinforce", 1.0, 2.0, reference_logprobs=same, kl_coefficient=0.1)[:2] == (plain, slope)


def test_truncated_reinforce_is_cispo() -> None:
    case = random_case()
    truncated = gradient(case, kind="reinforce", correction="truncate", correction_cap=1.1)
    assert torch.allclose(truncated, gradient(case, kind="cispo", eps_max=1.1), rtol=1e-12)


def test_the_masked_correction_leaves_out_what_lies_above_the_cap() -> None:
    assert one_token("reinforce", 2.1, 3.0, correction="mask", correction_cap=2.0)[:2] == (0, 0)
    assert one_token("reinforce", 1.9, 3.0, correction="mask", correction_cap=2.0)[1] == pytest.approx(3.0)
    with pytest.raises(ValueError, match="none, truncate or mask"):
        one_token("reinforce", 1.0, 1.0, correction="clip")


@pytest.mark.parametrize("kind", sorted(LOSSES))
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_poison_outside_the_mask_reaches_neither_loss_nor_gradient(kind: str, poison: float) -> None:
    clean = random_case() | {"reference_logprobs": REFERENCE}
    poisoned = dict(clean)
    for name in ("logprobs", "behavior_logprobs", "weights", "reference_logprobs"):
        poisoned[name] = torch.where(clean["mask"], clean[name], poison)
    poisoned["advantages"] = clean["advantages"].clone()
    poisoned["advantages"][0] = poison
    for options in ({}, {"correction": "mask"}):
        assert loss_at(poisoned, kind=kind, **options) == loss_at(clean, kind=kind, **options)
        assert torch.equal(gradient(poisoned, kind=kind, **options), gradient(clean, kind=kind, **options))


@pytest.mark.parametrize("kind", sorted(LOSSES))
@pytest.mark.parametrize("log_ratio", [-1e30, -1e3, 1e3, 1e30])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_ratios_and_references_stay_finite(kind: str, log_ratio: float, advantage: float) -> None:
    logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    behavior = torch.tensor([[-1.0 - log_ratio, -2.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    reference = torch.tensor([[-1.0 + log_ratio, -2.0]])
    result = policy_loss(
        logprobs,
        behavior,
        torch.tensor([advantage]),
        mask / 2,
        mask,
        kind=kind,
        reference_logprobs=reference,
        kl_coefficient=0.1,
    )
    result.loss.backward()
    assert math.isfinite(result.loss.item())
    assert logprobs.grad.isfinite().all()
    assert all(math.isfinite(value) for value in result.metrics.values())


@pytest.mark.parametrize("kind", sorted(LOSSES))
def test_whole_completions_add_up_over_micro_batches(kind: str) -> None:
    case = random_case()
    parts = [loss_at({name: value[cut] for name, value in case.items()}, kind=kind) for cut in (slice(2), slice(2, 5))]
    assert float(sum(parts)) == pytest.approx(float(loss_at(case, kind=kind)), rel=1e-12)
