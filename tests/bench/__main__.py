"""All benchmarks by one command, as a table, compared against the committed baseline.

    python -m tests.bench [--short] [--only NAME]... [--write-baseline]

Exit code 1 when a ratio is worse than `baseline.json` by more than 25 %. Short and full sizes have baselines of their own:
a ratio of small sizes says nothing about one of large sizes. Each benchmark runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.harness import Ratio

NAMES = ("head", "buffer", "weights", "engine", "trainer", "startup")
BASELINE = Path(__file__).with_name("baseline.json")


def run(name: str, short: bool) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ratios.json"
        command = [
            sys.executable,
            "-m",
            f"tests.bench.bench_{name}",
            "--json",
            str(out),
            *(["--short"] if short else []),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=900)
        return [Ratio(**row) for row in json.loads(out.read_text(encoding="utf-8"))]


def regressions(ratios: list[Ratio], before: dict[str, float]) -> list[str]:
    """One line for each ratio that is worse than its baseline by more than the tolerance."""
    return [
        f"{ratio.name}: {ratio.value:.3g}, baseline {before[ratio.name]:.3g}"
        for ratio in ratios
        if ratio.name in before and ratio.worse_than(before[ratio.name])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller sizes, fewer repeats: about two minutes")
    parser.add_argument("--only", action="append", choices=NAMES, help="only this benchmark; may be repeated")
    parser.add_argument("--write-baseline", action="store_true", help="record the ratios as the new baseline")
    options = parser.parse_args()
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
    before = baseline["short" if options.short else "full"]
    print("| what | goal | measured | met | figures |\n|---|---|---|---|---|")
    ratios = []
    for name in options.only or NAMES:
        for ratio in run(name, options.short):
            ratios.append(ratio)
            print(ratio.line(), flush=True)
    if options.write_baseline:
        before.update({ratio.name: round(ratio.value, 4) for ratio in ratios})
        BASELINE.write_text(json.dumps(baseline, indent=2) + "\n", encoding="utf-8")
        return 0
    worse = regressions(ratios, before)
    for line in worse:
        print(f"regression: {line}", file=sys.stderr)
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
