"""Each invariant has a test that fails when the code is broken on purpose - checked by breaking it.

    python tests/mutants.py            all mutants, about five minutes
    python tests/mutants.py 1 5        those of invariants 1 and 5

A mutant is one replaced piece of source text (tests/mutants.toml), made in a copy of the repository, and the tests that
must notice. Printed for each: the test that failed (it passes in an unbroken copy), or SURVIVED.
`tests/test_mutants.py` keeps the catalogue applicable.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("scalerl_mini", "simulate", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Mutant:
    """One entry of mutants.toml. invariant: its number in docs/invariants.md. tests: arguments of pytest."""

    invariant: int
    file: str
    old: str
    new: str
    tests: str


MUTANTS = [Mutant(**entry) for entry in tomllib.loads((ROOT / "tests/mutants.toml").read_text("utf-8"))["mutant"]]


def apply(mutant: Mutant, root: Path) -> None:
    """Break the copy below `root`; ValueError when the source has changed and the mutant no longer fits."""
    path = root / "scalerl_mini" / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file}: {mutant.old!r} is there {text.count(mutant.old)} times")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def verdict(mutant: Mutant) -> str:
    """The first test that fails on the broken copy and passes on the whole one, or SURVIVED."""
    broken = first_failure(mutant.tests.split(), mutant)
    if broken is None:
        return "SURVIVED"
    return f"FAILS UNBROKEN {broken}" if first_failure([broken]) else broken


def first_failure(tests: list[str], mutant: Mutant | None = None) -> str | None:
    """The first of `tests` that fails in a copy of the repository, broken by `mutant`; None when all pass."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        if mutant:
            apply(mutant, root)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", *tests]
        environment = os.environ | {"PYTHONPATH": str(root)}
        result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    failed = [line.partition(" ")[2].partition(" - ")[0] for line in lines]
    if result.returncode and not failed:
        raise RuntimeError(result.stdout + result.stderr)
    return failed[0] if failed else None


def main() -> None:
    wanted = {int(number) for number in sys.argv[1:]}
    chosen = [mutant for mutant in MUTANTS if not wanted or mutant.invariant in wanted]
    survived = 0
    for mutant in chosen:
        found = verdict(mutant)
        survived += not found.startswith("tests/")
        change = " ".join(mutant.new.split())[:70] or "(removed)"
        print(f"{mutant.invariant:2d}  {mutant.file}: {change}\n    {found}", flush=True)
    sys.exit(f"{survived} of {len(chosen)} survived" if survived else 0)


if __name__ == "__main__":
    main()
