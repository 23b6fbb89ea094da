"""Every loss with every aggregation and every advantage norm: numbers by hand, and a double loop over random groups.

The double loop is the definition read aloud: one token after another in float64, no tensors, no masks, no weights. Its
central differences are the gradient; for CISPO and REINFORCE the ratio is held while the log-probability moves.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch

from scalerl_mini.objective import group_advantages, policy_loss, token_weights
from scalerl_mini.objective.advantages import NORMS
from scalerl_mini.objective.aggregation import AGGREGATIONS

CONSTANTS = {
    "cispo": {"eps_max": 1.5},
    "reinforce": {},
    "grpo": {"eps": 0.2},
    "dapo": {"eps_low": 0.2, "eps_high": 0.26},
    "gspo": {"eps_low": 0.3, "eps_high": 0.3},
}
GRID = list(product(CONSTANTS, AGGREGATIONS, NORMS))
REFERENCE = 0.9  # the reference's log-probability as a multiple of the behaviour's
EXTRAS = [
    ("reinforce", {"correction": "truncate", "correction_cap": 1.2}),
    *((kind, {"correction": "mask", "correction_cap": 1.1}) for kind in CONSTANTS if kind != "gspo"),
    *((kind, {"kl_coefficient": 0.3}) for kind in CONSTANTS),
]

# By hand. Two prompts of two completions each; every log-probability is -1. Rewards 1, 0 and 1, 1/2.
RATIOS = [[2.0, 1.0], [0.5], [1.0], [0.5, 1.0, 2.0]]
REWARDS = [[1.0, 0.0], [1.0, 0.5]]
TOKENS = [2, 1, 1, 3]
# Sum of a completion's token terms divided by its advantage, which is positive in the first and third.
SUMS = {
    "cispo": [-(1.5 + 1), -0.5, -1, -(0.5 + 1 + 1.5)],
    "reinforce": [-2, -1, -1, -3],
    "grpo": [1.2 + 1, 0.8, 1, 0.8 + 1 + 2],
    "dapo": [1.26 + 1, 0.8, 1, 0.8 + 1 + 2],
    "gspo": [1.3 + 1.3, 0.7, 1, 1 + 1 + 1],  # sequence ratios sqrt(2), 1/2, 1, 1
}
STD = math.sqrt((2 / 4 + 2 / 16) / 4)
ADVANTAGES = {
    "none": [0.5, -0.5, 0.25, -0.25],
    "prompt": [1, -1, 1, -1],
    "batch": [0.5 / STD, -0.5 / STD, 0.25 / STD, -0.25 / STD],
}


def mean_by_hand(sums: list[float], aggregation: str) -> float:
    a, b, c, d = sums
    if aggregation == "prompt":
        return ((a + b) / 3 + (c + d) / 4) / 2
    if aggregation == "sample":
        return (a / 2 + b + c + d / 3) / 4
    return (a + b + c + d) / 7


@pytest.mark.parametrize(("kind", "aggregation", "norm"), GRID)
def test_numbers_by_hand(kind: str, aggregation: str, norm: str) -> None:
    mask = torch.arange(3) < torch.tensor(TOKENS)[:, None]
    logprobs = torch.where(mask, -1.0, math.nan).double()
    behavior = logprobs.clone()
    for row, ratios in enumerate(RATIOS):
        behavior[row, : len(ratios)] -= torch.tensor(ratios).double().log()
    loss = ours(logprobs, behavior, torch.tensor(REWARDS).double(), mask, kind, aggregation, norm)
    terms = [advantage * total for advantage, total in zip(ADVANTAGES[norm], SUMS[kind], strict=True)]
    assert float(loss) == pytest.approx(-mean_by_hand(terms, aggregation), abs=1e-5)  # eps of the std, fp32 weights


def ours(logprobs, behavior, rewards, mask, kind, aggregation, norm, **extra) -> torch.Tensor:
    """The three steps of `objective`, as a batch takes them."""
    advantages, keep = group_advantages(rewards, norm)
    trained = mask & keep.repeat_interleave(rewards.shape[1])[:, None]
    weights = token_weights(trained, torch.arange(len(rewards)).repeat_interleave(rewards.shape[1]), aggregation)
    extra |= {"reference_logprobs": REFERENCE * behavior} if "kl_coefficient" in extra else {}
    constants = CONSTANTS[kind] | extra
    return policy_loss(logprobs, behavior, advantages.flatten(), weights, trained, kind=kind, **constants).loss


def term(kind: str, rho: float, held: float, advantage: float, logprob: float) -> float:
    """One token's term. `held`: the ratio as far as no gradient flows through it."""
    constants = CONSTANTS[kind]
    if kind == "cispo":
        return min(held, constants["eps_max"]) * advantage * logprob
    if kind == "reinforce":
        return advantage * logprob
    low, high = constants.get("eps_low", constants.get("eps")), constants.get("eps_high", constants.get("eps"))
    return min(rho * advantage, min(max(rho, 1 - low), 1 + high) * advantage)


def with_extra(value: float, held: float, gap: float, extra: dict[str, Any]) -> float:
    """The term with its importance correction and its KL penalty. gap: log-probability of the reference minus ours."""
    cap = extra.get("correction_cap", math.inf)
    factor = {"truncate": min(held, cap), "mask": float(held <= cap)}.get(extra.get("correction", ""), 1.0)
    return factor * value - extra.get("kl_coefficient", 0.0) * (math.exp(gap) - 1 - gap)


Groups = list[list[list[tuple[float, float]]]]  # [prompt][completion][token] = log-probability, behaviour's


def double_loop(
    groups: Groups,
    held: Groups,
    rewards: list[list[float]],
    kind: str,
    aggregation: str,
    norm: str,
    extra: dict[str, Any] | None = None,
) -> float:
    """The loss to minimise. `held` has the log-probabilities from which held ratios are taken."""
    kept = [p for p, values in enumerate(rewards) if max(values) - min(values) > 1e-6]
    centred = {p: [value - sum(rewards[p]) / len(rewards[p]) for value in rewards[p]] for p in kept}
    every = [value for values in centred.values() for value in values]
    prompts, completions, tokens = [], [], []
    for p in kept:
        spread = {"none": [1.0], "prompt": centred[p], "batch": every}[norm]
        scale = 1.0 if norm == "none" else math.sqrt(sum(value**2 for value in spread) / len(spread)) + 1e-6
        group = []
        for i, completion in enumerate(groups[p]):
            if not completion:
                continue
            sequence = math.exp(sum(new - old for new, old in completion) / len(completion))
            found = []
            for (new, old), (still, _) in zip(completion, held[p][i], strict=True):
                rho = sequence if kind == "gspo" else math.exp(new - old)
                ratio = math.exp(still - old)
                value = term(kind, rho, ratio, centred[p][i] / scale, new)
                found.append(with_extra(value, ratio, REFERENCE * old - new, extra or {}))
            group += found
            completions.append(sum(found) / len(found))
        prompts.append(sum(group) / len(group))
        tokens += group
    members = {"prompt": prompts, "sample": completions, "token": tokens}[aggregation]
    return -sum(members) / len(members)


def random_groups(seed: int) -> tuple[Groups, list[list[float]]]:
    """4 prompts of 3 completions of 0 to 4 tokens; the second prompt is flat, ratios lie about 1."""
    generator = torch.Generator().manual_seed(seed)

    def uniform() -> float:
        return float(torch.rand((), generator=generator, dtype=torch.float64))

    groups: Groups = []
    for _ in range(4):
        group = []
        for sample in range(3):
            count = int(uniform() * 5) if sample else 1 + int(uniform() * 4)
            new = [-3 * uniform() - 0.05 for _ in range(count)]
            group.append([(value, value + 1.2 * (uniform() - 0.5)) for value in new])
        groups.append(group)
    rewards = [[round(uniform(), 2) for _ in range(3)] for _ in range(4)]
    rewards[1] = [0.1 + 0.2, 0.3, 0.3]
    return groups, rewards


def moved(groups: Groups, place: tuple[int, int, int], step: float) -> Groups:
    return [
        [
            [(new + step * ((p, i, t) == place), old) for t, (new, old) in enumerate(completion)]
            for i, completion in enumerate(group)
        ]
        for p, group in enumerate(groups)
    ]


@pytest.mark.parametrize(("kind", "aggregation", "norm"), GRID)
def test_loss_and_gradient_are_those_of_the_double_loop(kind: str, aggregation: str, norm: str) -> None:
    compare(kind, aggregation, norm, {})


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(("kind", "extra"), EXTRAS, ids=[f"{kind}-{min(extra)}" for kind, extra in EXTRAS])
def test_corrections_and_the_kl_term_are_those_of_the_double_loop(
    kind: str, aggregation: str, extra: dict[str, Any]
) -> None:
    compare(kind, aggregation, "batch", extra)


def compare(kind: str, aggregation: str, norm: str, extra: dict[str, Any]) -> None:
    """Loss to 1e-7, gradient to 1e-6 against central differences."""
    groups, rewards = random_groups(seed=3)
    flat = [completion for group in groups for completion in group]
    logprobs, behavior = torch.full((12, 4), math.nan).double(), torch.full((12, 4), math.nan).double()
    for row, completion in enumerate(flat):
        for t, (new, old) in enumerate(completion):
            logprobs[row, t], behavior[row, t] = new, old
    mask = logprobs.isfinite()
    leaf = logprobs.nan_to_num(0.0).requires_grad_()
    loss = ours(leaf, behavior, torch.tensor(rewards).double(), mask, kind, aggregation, norm, **extra)
    loss.backward()
    options = (groups, rewards, kind, aggregation, norm, extra)
    assert float(loss.detach()) == pytest.approx(double_loop(groups, *options), abs=1e-7)  # weights are fp32
    for row, t in mask.nonzero().tolist():
        up, down = (double_loop(moved(groups, (row // 3, row % 3, t), step), *options) for step in (1e-6, -1e-6))
        assert float(leaf.grad[row, t]) == pytest.approx((up - down) / 2e-6, rel=1e-6, abs=1e-8)
