"""Synthetic runs as files: one CSV or JSONL each, and the truth of all of them beside it in `truth.json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scalerl_mini.errors import UserError
from simulate.curves import Simulated, Spec, simulate_curve


def write_curves(
    folder: Path, spec: Spec, count: int, seed: int, kind: str = "csv", said: Callable[[int], None] = lambda done: None
) -> list[Path]:
    """Write `count` runs into a new or empty folder; run i depends on (seed, i) alone. Returns the curve files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be used as a folder ({error.strerror}); give another") from error
    if used:
        raise UserError(f"{folder}: not empty; give a new folder for the synthetic runs")
    paths, truths = [], {}
    for i in range(count):
        run = simulate_curve(spec, np.random.default_rng([seed, i]), name=f"run-{i:04d}")
        path = folder / f"{run.curve.name}.{kind}"
        path.write_text(_csv(run) if kind == "csv" else _jsonl(run))
        truths[path.name] = truth_dict(run)
        paths.append(path)
        said(i + 1)
    (folder / "truth.json").write_text(json.dumps({"seed": seed, "runs": truths}, indent=1) + "\n")
    return paths


def truth_dict(run: Simulated) -> dict[str, object]:
    """The truth of a run as plain JSON values, its noiseless scores included."""
    t = run.truth
    numbers = {k: float(getattr(t, k)) for k in ("R0", "A", "B", "C_mid", "ratio", "sigma", "phi")}
    return {"law": t.law, **numbers, "faults": list(t.faults), "clean": [round(float(v), 6) for v in t.clean]}


def _csv(run: Simulated) -> str:
    rows = [f"{c:.6g},{s:.6f}" for c, s in zip(run.compute, run.score, strict=True)]
    return "\n".join(["compute,pass_rate", *rows]) + "\n"


def _jsonl(run: Simulated) -> str:
    rows = [
        json.dumps({"step": i, "compute": round(float(c), 6), "pass_rate": round(float(s), 6)})
        for i, (c, s) in enumerate(zip(run.compute, run.score, strict=True))
    ]
    return "\n".join(rows) + "\n"
