"""The paper's Table 1 as truths: fit the first half of each run, forecast its end, and see who was right.

R_0 is not printed in the paper; .40 (8B) and .51 (Scout) are what its Figure 1 shows. Evaluations come every 100 steps:
about every 150 GPU-hours in the runs of 16k hours, 75 in the long ones. Noise as measured on the digitised 8B run.
"""

from __future__ import annotations

from collections.abc import Callable

from simulate.curves import Spec
from simulate.scoring import Cell
from simulate.validation import validate

# name, C_mid (GPU-hours), B, A, R_0, length of the run (GPU-hours), evaluations in it
RUNS = (
    ("ScaleRL 8B", 2542.0, 1.92, 0.610, 0.40, 16000.0, 106),
    ("32k tokens", 11272.0, 1.89, 0.645, 0.40, 50000.0, 75),
    ("8 generations", 2542.0, 2.44, 0.585, 0.40, 16000.0, 106),
    ("24 generations", 3054.0, 2.22, 0.590, 0.40, 16000.0, 106),
    ("32 generations", 2936.0, 2.07, 0.595, 0.40, 16000.0, 106),
    ("Scout 17Bx16", 4242.0, 1.65, 0.710, 0.51, 45000.0, 75),
    ("batch 512", 2818.0, 1.77, 0.605, 0.40, 16000.0, 106),
    ("batch 2048, 100k", 10909.0, 1.70, 0.645, 0.40, 100000.0, 75),
    ("math of math+code", 2896.0, 2.05, 0.595, 0.40, 16000.0, 106),
    ("code of math+code", 1675.0, 1.09, 0.615, 0.40, 16000.0, 106),
)
COLUMNS = (
    ("A bias", "A_bias", "+.4f"), ("|dA| p50", "A_p50", ".4f"), ("p90", "A_p90", ".4f"), ("cover", "A_coverage", ".3f"),
    ("width", "A_width", ".3f"), ("end bias", "R2x_bias", "+.4f"), ("|d end| p50", "R2x_p50", ".4f"),
    ("p90", "R2x_p90", ".4f"), ("cover", "R2x_coverage", ".3f"), ("width", "R2x_width", ".3f"),
    ("identified", "identified_share", ".2f"),
)  # fmt: skip


def cells(r0: str = "free") -> list[Cell]:
    """One cell a run: its first half."""
    return [
        Cell(Spec(R0=r, A=a, B=b, C_mid=c, ratio=0.5 * length / c, n=n // 2, phi=0.4, sigma_range=(0.003, 0.005)), r0)
        for _, c, b, a, r, length, n in RUNS
    ]


def table1(
    count: int,
    seed: int = 0,
    r0: str = "free",
    workers: int | None = None,
    said: Callable[[int], None] = lambda k: None,
) -> list[dict[str, object]]:
    """Rows of `validate`, each with its run's name, true A and length in C_mid; the end of the run is `R2x`."""
    rows = validate(cells(r0), count, seed, workers, said)
    return [
        {"run": run[0], "A_true": run[3], "half_in_C_mid": 0.5 * run[5] / run[1]} | row
        for run, row in zip(RUNS, rows, strict=True)
    ]


def text(rows: list[dict[str, object]]) -> str:
    """The rows as a table."""
    head = ["run", "A", "half / C_mid", *(c[0] for c in COLUMNS)]
    body = [
        [
            str(r["run"]),
            f"{r['A_true']:.3f}",
            f"{r['half_in_C_mid']:.1f}",
            *(format(r[key], form) for _, key, form in COLUMNS),
        ]
        for r in rows
    ]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *body])
