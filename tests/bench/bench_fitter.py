"""What the fitter costs and how exact it is, beside scipy and lmfit on the same curves in the same run.

    python tests/bench/bench_fitter.py [--only PART ...] [--curves 200] [--many 10000] [--fuzz 10000] [--parity 20]
        [--json FILE]

All times are CPU time of this process, one thread. lmfit is optional: `pip install lmfit` to have its row. A part whose
count is 0 is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from scipy.optimize import curve_fit, least_squares

from scalerl_mini.scaling import Curve, fit
from scalerl_mini.scaling.batch import fit_batch
from scalerl_mini.scaling.paper_grid import PAPER_A, paper_grid
from simulate.curves import Spec, simulate_curve

PARTS = ("rivals", "bulk", "intervals", "worst_sse_excess", "power_off_by_tenth", "paper_grid", "fuzz")
SPEC = Spec(phi=0.0, sigma_range=(0.003, 0.012), ratio_range=(1.0, 8.0), n_range=(14, 63), r0_samples=0)


def law(c, r0, a, b, c_mid):
    """The sigmoid as a user would write it for curve_fit."""
    return r0 + (a - r0) / (1.0 + (c_mid / c) ** b)


def runs(count, seed=0, spec=SPEC):
    """Synthetic runs."""
    return [simulate_curve(spec, np.random.default_rng([seed, i])) for i in range(count)]


def cpu(work, repeat=1):
    """CPU seconds of one call (best of `repeat`), and its result."""
    best = np.inf
    for _ in range(repeat):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def rivals(some):
    """Milliseconds a curve and median |dA| of scipy and lmfit, points only (their intervals come from the covariance)."""
    rows = {}
    guess = lambda r: (r.curve.score[0], r.curve.score[-1], 1.5, np.median(r.curve.compute))  # noqa: E731

    def scipy_default(r):
        return curve_fit(law, r.curve.compute, r.curve.score)[0][1]

    def scipy_bounded(r):
        c = r.curve.compute
        bounds = ([0, 0, 0.2, c[0] * 0.2], [1, 1, 8, c[-1] * 24.0])
        p0 = np.clip(guess(r), bounds[0], bounds[1])
        return curve_fit(law, c, r.curve.score, p0=p0, bounds=bounds)[0][1]

    jobs = {"curve_fit, default start": scipy_default, "curve_fit, bounds, sensible start": scipy_bounded}
    try:
        import lmfit
    except ImportError:
        print("lmfit is not installed: its row is left out")
    else:
        model = lmfit.Model(law)

        def lmfit_bounded(r):
            c, p = r.curve.compute, guess(r)
            parameters = model.make_params(
                r0={"value": p[0], "min": 0, "max": 1}, a={"value": p[1], "min": 0, "max": 1},
                b={"value": p[2], "min": 0.2, "max": 8}, c_mid={"value": p[3], "min": c[0] * 0.2, "max": c[-1] * 24},
            )  # fmt: skip
            return model.fit(r.curve.score, parameters, c=c).params["a"].value

        jobs["lmfit, bounds, sensible start"] = lmfit_bounded
    for name, job in jobs.items():
        rows[name] = timed(job, some)
    rows["scalerl-mini, with intervals"] = timed(lambda r: fit(r.curve, cutoff=0.0, r0="free").asymptote, some)
    return rows


def timed(job, some):
    """{ms a curve, median |dA|, failures} of a job over runs."""
    errors, failed = [], 0
    start = time.process_time()
    for r in some:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                errors.append(abs(job(r) - r.truth.A))
        except Exception:
            failed += 1
    spent = time.process_time() - start
    return {"ms": 1e3 * spent / len(some), "A_p50": float(np.median(errors)) if errors else None, "failed": failed}


def bulk(some):
    """Bootstrap refits and points in bulk."""
    r = some[0]
    rng = np.random.default_rng(0)
    scores = r.curve.score + 0.005 * rng.normal(size=(1000, len(r.curve)))
    best = fit_batch(r.curve.compute, scores[:1])
    cold, _ = cpu(lambda: fit_batch(r.curve.compute, scores), 3)
    warm, _ = cpu(lambda: fit_batch(r.curve.compute, scores, start=(best.B[0], best.C_mid[0])), 3)
    many = np.tile(scores, (10, 1))
    ten, _ = cpu(lambda: [fit_batch(r.curve.compute, many[i : i + 1000]) for i in range(0, 10000, 1000)])
    return {"n": len(r.curve), "1000_refits_ms": 1e3 * cold, "1000_refits_warm_ms": 1e3 * warm, "10000_points_s": ten}


def intervals(some):
    """Seconds for all curves one after another, intervals of A, B and C_mid included, and what became of them."""
    spent, results = cpu(lambda: Counter(fit(r.curve, cutoff=0.0, r0="free").status for r in some))
    return {"curves": len(some), "s": spent, **results}


def exactness(some):
    """Worst relative excess of our sum of squares over least_squares started at the truth."""
    worst = 0.0
    for r in some:
        result = fit(r.curve, cutoff=0.0, r0="free")
        if result.surface is None:
            continue
        x, y, t = np.log(r.curve.compute), r.curve.score, r.truth
        low, high = result.surface.problem.mid_limits
        bounds = ([0, 0, np.log(0.2), low], [1, 1, np.log(8.0), high])
        start = np.clip((t.R0, t.A, np.log(t.B), np.log(t.C_mid)), bounds[0], bounds[1])
        residual = lambda p: p[0] + (p[1] - p[0]) / (1 + np.exp(-np.exp(p[2]) * (x - p[3]))) - y  # noqa: B023, E731
        reference = 2 * least_squares(residual, start, bounds=bounds, xtol=1e-15, ftol=1e-15, gtol=1e-15).cost
        worst = max(worst, result.surface.exact.sse[0] / reference - 1.0)
    return worst


def paper_parity(some):
    """Share of curves on which the vectorised paper grid lands in the same cell as the literal loop of curve_fit."""
    same, spent_loop, spent_ours = 0, 0.0, 0.0
    for r in some:
        c, y, r0 = r.curve.compute, r.curve.score, r.truth.R0
        grid = tuple(np.linspace(0.1, 1.5, 100) * c[-1])
        ours_s, ours = cpu(lambda: paper_grid(Curve.of(c, y), r0, PAPER_A, grid))  # noqa: B023
        start = time.process_time()
        best = (np.inf, 0.0, 0.0)
        for a in PAPER_A:
            for m in grid:
                model = lambda c, b: r0 + (a - r0) / (1.0 + (m / c) ** b)  # noqa: B023, E731
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    (b,), _ = curve_fit(model, c, y)
                    sse = float(np.sum((model(c, b) - y) ** 2))
                best = min(best, (sse, a, m))
        spent_loop, spent_ours = spent_loop + time.process_time() - start, spent_ours + ours_s
        same += (ours.A, ours.C_mid) == (best[1], best[2])
    return {"same_cell": same, "of": len(some), "loop_s": spent_loop / len(some), "ours_s": spent_ours / len(some)}


def power_trap(some):
    """Share of sigmoids whose first half (its own first 10 % cut, as always) sends the power law's A off by more than .1."""
    off = []
    for r in some:
        half = fit(r.curve, law="power", max_compute=0.5 * r.curve.compute[-1])
        off.append(abs(half.A - r.truth.A) > 0.1)
    return float(np.mean(off))


def fuzz(count):
    """Statuses of mangled curves; any exception or numpy warning ends the bench."""
    from tests.scaling.test_fuzz import mangled

    rng, counts = np.random.default_rng(1), {}
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        for _ in range(count):
            status = fit(Curve.of(*mangled(rng))).status
            counts[status] = counts.get(status, 0) + 1
    return counts


def main():
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, default=200)
    parser.add_argument("--many", type=int, default=10000)
    parser.add_argument("--fuzz", type=int, default=10000)
    parser.add_argument("--parity", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    some = runs(max(options.curves, 1))
    fit(some[0].curve)
    half = Spec(phi=0.0, sigma_range=(0.003, 0.01), ratio_range=(2.0, 8.0), n_range=(30, 75))
    within = Spec(phi=0.0, sigma_range=(0.003, 0.01), ratio_range=(1.5, 8.0), R0=0.3, n_range=(14, 40), A=0.6)
    parts = {
        "rivals": lambda: rivals(some),
        "bulk": lambda: bulk(some),
        "intervals": lambda: intervals(runs(options.many, 8)),
        "worst_sse_excess": lambda: exactness(runs(1000, 5)),
        "power_off_by_tenth": lambda: power_trap(runs(400, 6, half)),
        "paper_grid": lambda: paper_parity(runs(options.parity, 7, within)),
        "fuzz": lambda: fuzz(options.fuzz),
    }
    counts = {"rivals": options.curves, "intervals": options.many, "paper_grid": options.parity, "fuzz": options.fuzz}
    found = {}
    for name in (part for part in parts if part in options.only and counts.get(part) != 0):
        found[name] = parts[name]()
        print(f"{name}: {json.dumps(found[name], indent=2)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
