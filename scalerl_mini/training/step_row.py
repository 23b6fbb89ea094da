"""What is logged of a step: one row of steps.jsonl, and a sample of completions. Counts are summed, then divided."""

from __future__ import annotations

from typing import Any

from scalerl_mini.policy.model import Policy
from scalerl_mini.tasks.grade import Verdict
from scalerl_mini.training.batch import Batch
from scalerl_mini.training.compute import ComputeMeter


def step_row(
    batch: Batch,
    version: int,
    metrics: dict[str, Any],
    timing: dict[str, float],
    meter: ComputeMeter,
    counts: dict[str, int],
) -> dict[str, Any]:
    """`version` is the one that trained the batch; the row's policy_version is what came out. Token columns and
    skipped_steps are totals since the start of the run, seconds are of this step; all other counts are of this step."""
    lag = batch.lag(version)
    return {
        "step": version + 1,
        "policy_version": version + 1,
        **metrics,
        "lag_min": int(lag.min()) if lag.size else 0,
        "lag_mean": float(lag.mean()) if lag.size else 0.0,
        "lag_max": int(lag.max()) if lag.size else 0,
        "effective_groups": int(batch.keep.sum()),
        "groups": len(batch.keep),
        "grading_errors": batch.count(Verdict.ERROR),
        "grading_timeouts": batch.count(Verdict.TIMEOUT),
        "reward_mean": float(batch.rewards.mean()),
        "truncation_rate": float(batch.truncated.mean()),
        "interruption_rate": float(batch.interrupted.mean()),
        "mean_length": float(batch.lengths.mean()),
        "generated_tokens": meter.generated_tokens,
        "trained_tokens": meter.trained_tokens,
        "dropped_tokens": batch.dropped_tokens,
        **counts,
        "wall_seconds": meter.wall_seconds,
        **timing,
    }


def rollout_rows(batch: Batch, policy: Policy) -> list[dict[str, Any]]:
    """The first group of a batch as text, with rewards and the versions that sampled it."""
    return [
        {
            "prompt": policy.decode(batch.prompts[n]),
            "completion": policy.decode(batch.tokens[n, : batch.lengths[n]]),
            "reward": float(batch.rewards[0, n]),
            "grading": Verdict(int(batch.grading[0, n])).name.lower(),
            "interrupted": bool(batch.interrupted[n]),
            "first_version": int(batch.versions[n, 0]),
            "last_version": int(batch.versions[n, batch.lengths[n] - 1]),
        }
        for n in range(batch.rewards.shape[1])
    ]
