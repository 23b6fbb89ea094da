"""What a run's logs say beside its curve: who was clipped, what was cut, how entropy, mismatch and lag went. No torch here.

Clipping of the PPO type takes the gradient from tokens whose probability moved most; good and bad completions are counted
apart, because only on one side of each does a bound act. Truncations above 10 to 15 % precede instability (paper section 6).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalerl_mini.training.row_log import read_rows

TAIL = 20  # steps at either end of the run that a value is the mean of
SHOWN = 3  # most clipped tokens
TRUNCATION_WARNING = 0.1


@dataclass(frozen=True)
class Diagnostics:
    """clipped_positive, clipped_negative: share of the trained tokens with an advantage of that sign that the loss's bound
    took hold of, None where there were none. most_clipped: text and clipped share of the tokens clipped most often.

    truncation: share of sampled completions cut at the limit, last steps, and truncation_most the worst step. entropy
    (nats), mismatch (k3 estimate of KL(generator || trainer), nats): first and last steps. lag: mean of all steps.
    """

    clipped_positive: float | None
    clipped_negative: float | None
    most_clipped: tuple[tuple[str, float], ...]
    truncation: float
    truncation_most: float
    entropy: tuple[float | None, float | None]
    mismatch: tuple[float | None, float | None]
    lag: float

    def lines(self) -> list[str]:
        """Two lines for the end of a run, and a warning where it ended with many truncations."""
        tokens = ", ".join(f"{text!r} {share:.1%}" for text, share in self.most_clipped)
        entropy, mismatch = (" to ".join(map(_number, pair)) for pair in (self.entropy, self.mismatch))
        lines = [
            f"clipped: {percent(self.clipped_positive)} of the tokens of good completions, "
            f"{percent(self.clipped_negative)} of bad ones" + (f"; most often {tokens}" if tokens else ""),
            f"truncated: {self.truncation:.1%} of completions at the end, {self.truncation_most:.1%} in the worst step; "
            f"entropy {entropy}, mismatch {mismatch}, mean lag {self.lag:.1f}",
        ]
        if self.truncation > TRUNCATION_WARNING:
            lines.append("warning: above 10 % truncated completions precede instability; raise rollout.max_new_tokens")
        return lines


def diagnose(folder: Path) -> Diagnostics | None:
    """From steps.jsonl and clipped_tokens.json of a run folder; None before its first step."""
    steps = read_rows(folder / "steps.jsonl")
    if not steps:
        return None
    clipped = _clipped_tokens(folder / "clipped_tokens.json")
    truncations = [row["truncation_rate"] for row in steps]
    return Diagnostics(
        _share(clipped, "positive"),
        _share(clipped, "negative"),
        tuple((token["text"], _rate(token)) for token in clipped.get("tokens", [])[:SHOWN]),
        sum(truncations[-TAIL:]) / len(truncations[-TAIL:]),
        max(truncations),
        _ends(steps, "entropy"),
        _ends(steps, "mismatch_kl"),
        sum(row["lag_mean"] for row in steps) / len(steps),
    )


def percent(share: float | None) -> str:
    """A share as text; "-" where there is none."""
    return "-" if share is None else f"{share:.2%}"


def _clipped_tokens(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _share(counts: Mapping[str, Any], sign: str) -> float | None:
    seen = counts.get(f"seen_{sign}", 0)
    return counts[f"clipped_{sign}"] / seen if seen else None


def _rate(token: Mapping[str, Any]) -> float:
    """Clipped share of a token's occurrences with an advantage."""
    return (token["clipped_positive"] + token["clipped_negative"]) / (token["seen_positive"] + token["seen_negative"])


def _ends(steps: Sequence[Mapping[str, Any]], key: str) -> tuple[float | None, float | None]:
    """Means over the first and the last steps that have the value: steps without a loss have none."""
    values = [row[key] for row in steps if row[key] is not None]
    first, last = values[:TAIL], values[-TAIL:]
    return (sum(first) / len(first), sum(last) / len(last)) if values else (None, None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"
