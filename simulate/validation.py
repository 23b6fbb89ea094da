"""`simulate validate`: many curves per cell through the fitter, on all cores, and what became of the promises.

Curve number i of cell number c is drawn from the seed (seed, c, i), so the table does not depend on the number of workers.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from simulate.scoring import Cell, Record, score

CHUNK = 20


def validate(
    cells: Sequence[Cell],
    count: int,
    seed: int = 0,
    workers: int | None = None,
    said: Callable[[int], None] = lambda done: None,
) -> list[dict[str, object]]:
    """Fit `count` curves in each cell and summarise: one row per cell. `said(k)` is called when k more are done."""
    jobs = [
        (cell, seed, c, start, min(start + CHUNK, count))
        for c, cell in enumerate(cells)
        for start in range(0, count, CHUNK)
    ]
    records: dict[int, dict[int, list[Record]]] = {c: {} for c in range(len(cells))}
    for c, start, part in _results(jobs, workers or os.cpu_count() or 1):
        records[c][start] = part
        said(len(part))
    ordered = [[r for start in sorted(parts) for r in parts[start]] for parts in records.values()]
    return [cell.label() | summarise(rows) for cell, rows in zip(cells, ordered, strict=True)]


def _results(jobs: list, workers: int):
    if workers <= 1:
        yield from map(_chunk, jobs)
        return
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = {k: os.environ.get(k) for k in threads}
    os.environ.update(threads)  # inherited by the workers: one thread each
    try:
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            try:
                for done in as_completed([pool.submit(_chunk, job) for job in jobs]):
                    yield done.result()
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def _chunk(job: tuple[Cell, int, int, int, int]) -> tuple[int, int, list[Record]]:
    cell, seed, c, start, stop = job
    return c, start, [score(cell, (seed, c, i)) for i in range(start, stop)]


def summarise(records: Sequence[Record]) -> dict[str, object]:
    """Bias, errors, coverage, widths, verdicts, flags and wrong winners of one cell's curves."""
    fitted = [r for r in records if r["status"] == "ok"]
    row: dict[str, object] = {"curves": len(records), "fitted": len(fitted)}
    row |= {f"status_{s}": _share(records, "status", s) for s in ("too_few_points", "no_rise", "collapse")}
    for key in ("A", "R2x", "R10x"):
        row |= _errors(fitted, key)
    for key in ("B", "C_mid", "gain2x", "gain10x"):
        row[f"{key}_coverage"] = _mean(fitted, f"{key}_covered")
    row |= _verdicts(fitted) | _flags(records) | _rivals(records) | _calibration(fitted) | _ranking(fitted)
    return row


def _values(records: Sequence[Record], key: str) -> np.ndarray:
    return np.array([r[key] for r in records if key in r], float)


def _mean(records: Sequence[Record], key: str) -> float | None:
    values = _values(records, key)
    return float(values.mean()) if len(values) else None


def _share(records: Sequence[Record], key: str, value: str) -> float | None:
    return float(np.mean([r[key] == value for r in records])) if records else None


def _quantile(values: np.ndarray, q: float) -> float | None:
    return float(np.quantile(values, q)) if len(values) else None


def _errors(records: Sequence[Record], key: str) -> dict[str, object]:
    error = _values(records, f"{key}_error")
    row: dict[str, object] = {
        f"{key}_bias": _quantile(error, 0.5), f"{key}_p50": _quantile(np.abs(error), 0.5),
        f"{key}_p90": _quantile(np.abs(error), 0.9),
    }  # fmt: skip
    for kind in ("", "_robust", "_printed"):
        width = _values(records, f"{key}{kind}_width")
        if len(width) or not kind:
            row[f"{key}{kind}_coverage"] = _mean(records, f"{key}{kind}_covered")
            row[f"{key}{kind}_width"] = _quantile(width, 0.5)
    return row


def _verdicts(records: Sequence[Record]) -> dict[str, object]:
    """Per verdict: its share, P(|A error| <= .02), and the interval's coverage."""
    row: dict[str, object] = {}
    for verdict in ("identified", "weak", "poor", "unidentified"):
        part = [r for r in records if r["verdict"] == verdict]
        row[f"{verdict}_share"] = len(part) / len(records) if records else None
        error = np.abs(_values(part, "A_error"))
        row[f"{verdict}_within_02"] = float(np.mean(error <= 0.02)) if len(error) else None
        row[f"{verdict}_coverage"] = _mean(part, "A_covered")
    return row


def _flags(records: Sequence[Record]) -> dict[str, object]:
    names = sorted({str(f) for r in records for f in r["flags"]})  # type: ignore[attr-defined]
    return {f"flag_{n}": float(np.mean([n in r["flags"] for r in records])) for n in names}  # type: ignore[operator]


def _rivals(records: Sequence[Record]) -> dict[str, object]:
    row: dict[str, object] = {}
    for rival in ("power", "paper"):
        error = np.abs(_values(records, f"{rival}_A_error"))
        if len(error):
            row |= {f"{rival}_A_p50": _quantile(error, 0.5), f"{rival}_A_p90": _quantile(error, 0.9),
                    f"{rival}_A_off_by_tenth": float(np.mean(error > 0.1))}  # fmt: skip
    return row


def _calibration(records: Sequence[Record]) -> dict[str, object]:
    """Brier score of P(gain > .02) at 2 and 10 times the last compute."""
    row: dict[str, object] = {}
    for m in ("2x", "10x"):
        p, hit = _values(records, f"p_gain{m}"), _values(records, f"is_gain{m}")
        row[f"gain{m}_brier"] = float(np.mean((p - hit) ** 2)) if len(p) else None
    return row


def _ranking(records: Sequence[Record]) -> dict[str, object]:
    """How often each rule calls a winner, and how often the wrong one."""
    true, estimate, p = (_values(records, f"pair_{k}") for k in ("true", "estimate", "p"))
    if not len(p):
        return {}
    row: dict[str, object] = {}
    rules = {"rule_02": np.abs(estimate) > 0.02, "rule_p90": np.abs(p - 0.5) > 0.4, "rule_p95": np.abs(p - 0.5) > 0.45}
    for name, called in rules.items():
        sign = np.sign(estimate) if name == "rule_02" else np.sign(p - 0.5)
        wrong = float(np.mean(sign[called] != np.sign(true[called]))) if called.any() else None
        row |= {f"{name}_called": float(called.mean()), f"{name}_wrong": wrong}
    return row | {"pair_brier": float(np.mean((p - (true > 0)) ** 2))}
