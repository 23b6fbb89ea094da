"""The table beside the ranking: how the variants differ in what the loss clips, in lag, entropy, mismatch and truncation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scalerl_mini.training.diagnostics import Diagnostics, percent


def diagnosis_table(diagnoses: Mapping[str, Sequence[Diagnostics]]) -> list[str]:
    """Markdown lines, a row a variant with the means over its runs; none when no run has steps."""
    rows = [_row(name, runs) for name, runs in diagnoses.items() if runs]
    if not rows:
        return []
    return [
        "",
        "| variant | mean lag | clipped, good | clipped, bad | most clipped | cut at the end | entropy | mismatch |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]


def _row(name: str, runs: Sequence[Diagnostics]) -> str:
    tokens = " ".join(f"`{text}`" for text in dict.fromkeys(text for one in runs for text, _ in one.most_clipped[:2]))
    cells = (
        name,
        f"{_mean([one.lag for one in runs]):.1f}",
        percent(_mean([one.clipped_positive for one in runs])),
        percent(_mean([one.clipped_negative for one in runs])),
        tokens or "-",
        f"{_mean([one.truncation for one in runs]):.1%}",
        _change([one.entropy for one in runs]),
        _change([one.mismatch for one in runs]),
    )
    return f"| {' | '.join(cells)} |"


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _change(pairs: Sequence[tuple[float | None, float | None]]) -> str:
    """First to last, each the mean over the runs."""
    ends = (_mean([pair[0] for pair in pairs]), _mean([pair[1] for pair in pairs]))
    return " to ".join("-" if value is None else f"{value:.2g}" for value in ends)
