"""A validation as a text table and as the coverage figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scalerl_mini.scaling.plots import new_figure, save

LABELS = ("law", "phi", "sigma", "ratio", "n", "r0", "cutoff", "faults")
COLUMNS = (
    ("fitted", "fitted", "d"), ("A bias", "A_bias", "+.4f"), ("|dA| p50", "A_p50", ".4f"), ("p90", "A_p90", ".3f"),
    ("A cover", "A_coverage", ".3f"), ("width", "A_width", ".3f"), ("|dR2x| p90", "R2x_p90", ".4f"),
    ("R2x cover", "R2x_coverage", ".3f"), ("width", "R2x_width", ".3f"), ("R10x cover", "R10x_coverage", ".3f"),
    ("robust A", "A_robust_coverage", ".3f"), ("width", "A_robust_width", ".3f"), ("B cover", "B_coverage", ".3f"),
    ("identified", "identified_share", ".2f"), ("within .02", "identified_within_02", ".2f"),
    ("power > .1 off", "power_A_off_by_tenth", ".2f"), ("paper p50", "paper_A_p50", ".4f"),
    ("wrong |dA|>.02", "rule_02_wrong", ".3f"), ("wrong P>.95", "rule_p95_wrong", ".3f"),
)  # fmt: skip


def table(rows: Sequence[dict[str, object]]) -> str:
    """Columns that are empty everywhere, and labels that never vary, are left out (the latter said on top)."""
    varying = [k for k in LABELS if len({str(r[k]) for r in rows}) > 1]
    fixed = ", ".join(f"{k} {rows[0][k]}" for k in LABELS if k not in varying)
    used = [c for c in COLUMNS if any(r.get(c[1]) is not None for r in rows)]
    head = [*varying, *(c[0] for c in used)]
    body = [[*(str(r[k]) for k in varying), *(_cell(r.get(key), form) for _, key, form in used)] for r in rows]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *body]]
    return "\n".join([f"{rows[0]['curves']} curves a cell; {fixed}", *lines])


def _cell(value: object, form: str) -> str:
    return "-" if value is None else format(value, form)


def plot_coverage(rows: Sequence[dict[str, object]], path: str | Path, level: float = 0.9) -> Path:
    """Coverage of the intervals for A and R(2x) in every cell, against the nominal level."""
    figure, axes = new_figure(max(7.0, 0.55 * len(rows) + 2.0), 4.0)
    varying = [k for k in LABELS if len({str(r[k]) for r in rows}) > 1]
    names = ["\n".join(f"{k} {r[k]}" for k in varying) or "all" for r in rows]
    for key, mark, colour in (("A", "o", "#1f5fa8"), ("R2x", "s", "#3a8f5c"), ("A_robust", "^", "#d9534f")):
        values = [r.get(f"{key}_coverage") for r in rows]
        if any(v is not None for v in values):
            axes.plot(range(len(rows)), values, mark, ms=5, color=colour, label=key.replace("_", " "))
    axes.axhline(level, color="black", lw=0.8, ls="--", label=f"nominal {level:g}")
    axes.axhspan(0.88, 0.94, color="#e9f2e4", zorder=-5)
    axes.set_xticks(range(len(rows)), names, fontsize=7)
    axes.set_ylim(min(0.78, *(float(str(r["A_coverage"] or 0.78)) for r in rows)) - 0.02, 1.0)
    axes.set_ylabel("share of intervals that hold the truth")
    axes.legend(fontsize=8, loc="lower right")
    return save(figure, path)
