"""The same inputs through the loss of TRL's `GRPOTrainer`, on a stand-in that has only what that method reads.

| here | there | where the definitions differ |
|---|---|---|
| grpo, sample | `loss_type="grpo"` | a completion without any trained token counts there as a member of the mean, not here |
| dapo, token | `loss_type="dapo"` | the divisor is handed in (`num_items_in_batch`); equal when it is the batch's tokens |
| cispo, token | `loss_type="cispo"` | equal: `epsilon_high` is the cap on the ratio itself, as here |
| gspo, sample | `loss_type="grpo"`, sequence level | equal |

Prompt-level averaging (the paper's) has no counterpart there. Advantages are not compared: TRL divides by the sample std of
the rewards plus 1e-4, here it is the population std of the advantages plus 1e-6.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from scalerl_mini.objective import policy_loss, token_weights

ROWS, WIDTH = 6, 7

CASES = [
    ("grpo", "sample", {"eps": 0.2}, {"loss_type": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2}),
    ("dapo", "token", {"eps_low": 0.2, "eps_high": 0.26}, {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.26}),
    ("cispo", "token", {"eps_max": 1.3}, {"loss_type": "cispo", "epsilon_low": 0.2, "epsilon_high": 1.3}),
    (
        "gspo", "sample", {"eps_low": 0.03, "eps_high": 0.04},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.03, "epsilon_high": 0.04},
    ),
]  # fmt: skip


def inputs() -> dict[str, Tensor]:
    """Random log-probabilities in float64, ratios about 1, lengths from 1 to WIDTH and a few masked tokens inside."""
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, WIDTH)
    logprobs = -3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    mask = (torch.arange(WIDTH) < torch.arange(ROWS)[:, None] + 2) & (torch.rand(shape, generator=generator) < 0.8)
    mask[:, 0] = True
    return {
        "logprobs": logprobs,
        "behavior": logprobs + 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64),
        "reference": logprobs + 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64),
        "advantages": torch.randn(ROWS, generator=generator, dtype=torch.float64),
        "mask": mask,
    }


def theirs(case: dict[str, Tensor], leaf: Tensor, beta: float, **options: Any) -> Tensor:
    """`GRPOTrainer._compute_loss` with its log-probabilities handed in: one process, no accumulation."""
    trainer = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer
    stand_in = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (leaf, torch.zeros_like(leaf), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        beta=beta,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        use_vllm=False,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        **({"importance_sampling_level": "token"} | options),
    )
    ids = torch.zeros(ROWS, WIDTH, dtype=torch.long)
    batch = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": case["mask"].double(),
        "advantages": case["advantages"],
        "old_per_token_logps": case["behavior"],
        "ref_per_token_logps": case["reference"],
        "num_items_in_batch": case["mask"].sum(),
    }
    return trainer._compute_loss(stand_in, None, batch)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize(("kind", "aggregation", "constants", "options"), CASES, ids=[case[0] for case in CASES])
def test_loss_and_gradient_are_those_of_trl(
    kind: str, aggregation: str, constants: dict[str, float], options: dict[str, Any], beta: float
) -> None:
    case = inputs()
    leaf, other = (case["logprobs"].clone().requires_grad_() for _ in range(2))
    result = policy_loss(
        leaf,
        case["behavior"],
        case["advantages"],
        token_weights(case["mask"], torch.arange(ROWS) // 2, aggregation).double(),
        case["mask"],
        kind=kind,
        reference_logprobs=case["reference"] if beta else None,
        kl_coefficient=beta,
        **constants,
    )
    expected = theirs(case, other, beta, **options)
    result.loss.backward()
    expected.backward()
    assert 0 < result.metrics["capped_sum"] < result.metrics["tokens"]
    assert float(result.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert torch.allclose(leaf.grad, other.grad, rtol=1e-6, atol=1e-9)


def test_an_empty_completion_is_a_member_of_the_mean_there_and_not_here() -> None:
    case = inputs()
    case["mask"][2] = False
    leaf = case["logprobs"].clone().requires_grad_()
    weights = token_weights(case["mask"], torch.arange(ROWS) // 2, "sample").double()
    result = policy_loss(leaf, case["behavior"], case["advantages"], weights, case["mask"], kind="grpo", eps=0.2)
    expected = theirs(case, leaf, 0.0, loss_type="grpo", epsilon_low=0.2, epsilon_high=0.2)
    assert float(result.loss.detach()) == pytest.approx(float(expected.detach()) * ROWS / (ROWS - 1), rel=1e-6)
