"""The policy loss against arithmetic done by hand, finite differences in float64, and poison outside the mask."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from scalerl_mini.objective import policy_loss, token_weights

RHO = math.log(2.0)


def random_case(seed: int = 0, rows: int = 4, width: int = 5) -> dict[str, Tensor]:
    """Random float64 arguments of `policy_loss`; ratios from about 0.01 to 100."""
    generator = torch.Generator().manual_seed(seed)
    logprobs = -3 * torch.rand(rows, width, generator=generator, dtype=torch.float64)
    mask = torch.rand(rows, width, generator=generator) < 0.7
    return {
        "logprobs": logprobs,
        "behavior_logprobs": logprobs + 2 * torch.randn(rows, width, generator=generator, dtype=torch.float64),
        "advantages": torch.randn(rows, generator=generator, dtype=torch.float64),
        "weights": token_weights(mask, torch.arange(rows) // 2, "prompt").double(),
        "mask": mask,
    }


def gradient(case: dict[str, Tensor], **options: Any) -> Tensor:
    logprobs = case["logprobs"].clone().requires_grad_()
    policy_loss(**(case | {"logprobs": logprobs}), **options).loss.backward()
    assert logprobs.grad is not None
    return logprobs.grad


def test_cispo_by_hand() -> None:
    # ratios 2, 1/2 and e^3 = 20.1 (capped at 5); one completion, A = 3, weights 1/3
    logprobs = torch.tensor([[-1.0, -2.0, -0.5]], dtype=torch.float64)
    behavior = logprobs - torch.tensor([[RHO, -RHO, 3.0]], dtype=torch.float64)
    mask = torch.ones(1, 3, dtype=torch.bool)
    result = policy_loss(logprobs, behavior, torch.tensor([3.0]), mask.double() / 3, mask, kind="cispo", eps_max=5.0)
    assert float(result.loss) == pytest.approx(-(2 * 3 * -1 + 0.5 * 3 * -2 + 5 * 3 * -0.5) / 3, rel=1e-12)
    kl = (2 - 1 - RHO) + (0.5 - 1 + RHO) + (math.e**3 - 1 - 3)
    assert result.metrics == pytest.approx(
        {
            "tokens": 3,
            "ratio_sum": 2 + 0.5 + math.e**3,
            "ratio_max": math.e**3,
            "capped_sum": 1,
            "capped_positive_sum": 1,
            "mismatch_kl_sum": kl,
            "logprob_gap_sum": 2 * RHO + 3,
            "logprob_gap_max": 3,
        },
        rel=1e-12,
    )


def test_reinforce_has_no_ratio() -> None:
    case = random_case()
    result = policy_loss(**case, kind="reinforce")
    terms = case["advantages"][:, None] * case["logprobs"] * case["weights"]
    assert float(result.loss) == pytest.approx(-float(terms[case["mask"]].sum()), rel=1e-12)
    assert result.metrics["capped_sum"] == 0
    expected = -(case["weights"] * case["advantages"][:, None])
    assert torch.allclose(gradient(case, kind="reinforce"), expected, rtol=1e-12)


@pytest.mark.parametrize("eps_max", [1.0, 4.0, 1e6])
def test_cispo_gradient_is_capped_ratio_times_advantage_times_grad_log_pi(eps_max: float) -> None:
    """Central differences of sum w * sg(min(rho, eps)) * A * log pi(theta) where log pi is a softmax of float64 logits."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    chosen, advantages = torch.tensor([0, 3, 2, 2, 1, 0]), torch.tensor([1.5, -0.5, 0.3, -2.0, 0.7, 1.0]).double()
    behavior = logits.log_softmax(-1).gather(1, chosen[:, None]) - torch.tensor([[0.2, -1, 2, 0, 1.4, -3]]).T
    mask, weights = torch.ones(6, 1, dtype=torch.bool), torch.full((6, 1), 1 / 6, dtype=torch.float64)

    def log_pi(values: Tensor) -> Tensor:
        return values.log_softmax(-1).gather(1, chosen[:, None])

    leaf = logits.clone().requires_grad_()
    policy_loss(log_pi(leaf), behavior, advantages, weights, mask, kind="cispo", eps_max=eps_max).loss.backward()
    held = (log_pi(logits) - behavior).exp().clamp(max=eps_max)  # the stop-gradient: not a function of theta
    assert (held == eps_max).any() == (eps_max < 1e6)
    for place in range(logits.numel()):
        step = torch.zeros_like(logits)
        step.view(-1)[place] = 1e-5
        up, down = (-(weights * held * advantages[:, None] * log_pi(logits + s)).sum() for s in (step, -step))
        assert float(leaf.grad.view(-1)[place]) == pytest.approx(float(up - down) / 2e-5, rel=1e-7, abs=1e-10)


def test_a_capped_token_keeps_its_gradient() -> None:
    case = random_case()
    case["behavior_logprobs"] = case["logprobs"] - 10
    assert (gradient(case, kind="cispo", eps_max=5.0)[case["mask"]] != 0).all()


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["cispo", "reinforce"])
def test_poison_outside_the_mask_changes_nothing(kind: str, poison: float) -> None:
    clean = random_case()
    clean["mask"][2] = False
    clean["weights"] = token_weights(clean["mask"], torch.arange(4) // 2, "prompt").double()
    poisoned = dict(clean)
    for name in ("logprobs", "behavior_logprobs", "weights"):
        poisoned[name] = torch.where(clean["mask"], clean[name], poison)
    poisoned["advantages"] = clean["advantages"].clone()
    poisoned["advantages"][2] = poison
    expected, result = policy_loss(**clean, kind=kind), policy_loss(**poisoned, kind=kind)
    assert float(result.loss) == float(expected.loss)
    assert result.metrics == expected.metrics
    assert torch.equal(gradient(poisoned, kind=kind), gradient(clean, kind=kind))


def test_masked_tokens_get_no_gradient_whatever_their_weight() -> None:
    case = random_case()
    case["weights"] = torch.ones_like(case["weights"])
    grad = gradient(case)
    assert (grad[~case["mask"]] == 0).all()
    assert (grad[case["mask"]] != 0).all()


@pytest.mark.parametrize("log_ratio", [-1e30, -1e4, -100.0, 100.0, 1e4, 1e30])
def test_extreme_log_ratios_stay_finite(log_ratio: float) -> None:
    logprobs = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    behavior = torch.tensor([[-1.0 - log_ratio, -1.0]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    result = policy_loss(logprobs, behavior, torch.tensor([1.0]), torch.full((1, 2), 0.5), mask, eps_max=5.0)
    result.loss.backward()
    assert math.isfinite(result.loss.item())
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert float(logprobs.grad[0, 0]) == pytest.approx(-0.5 * (5.0 if log_ratio > 0 else 0.0), abs=1e-6)


def test_an_empty_mask_gives_zero_and_metrics_do_not_raise() -> None:
    case = random_case()
    case["mask"] = torch.zeros_like(case["mask"])
    result = policy_loss(**case)
    assert float(result.loss) == 0
    assert set(result.metrics.values()) == {0.0}
    assert policy_loss(**{name: value[:0] for name, value in case.items()}).metrics["tokens"] == 0


def test_micro_batches_add_up() -> None:
    case = random_case(rows=7)
    whole = policy_loss(**case)
    parts = [policy_loss(**{name: value[cut] for name, value in case.items()}) for cut in (slice(0, 3), slice(3, 7))]
    assert float(sum(part.loss for part in parts)) == pytest.approx(float(whole.loss), rel=1e-12)
    for name in ("tokens", "ratio_sum", "capped_sum", "mismatch_kl_sum", "logprob_gap_sum"):
        assert sum(part.metrics[name] for part in parts) == pytest.approx(whole.metrics[name], rel=1e-12)
    assert max(part.metrics["ratio_max"] for part in parts) == whole.metrics["ratio_max"]


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="cispo, reinforce"):
        policy_loss(**random_case(), kind="ppo")
