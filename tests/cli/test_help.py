"""Help answers at once: nothing heavy is imported for it, and every command shows an example."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from scalerl_mini.cli import COMMANDS

HEAVY = {"torch", "numpy", "pydantic", "transformers", "scipy", "matplotlib", "rich"}
SCRIPT = """
import json, sys
from scalerl_mini.cli import main
sys.argv[0] = "scalerl-mini"
try:
    main()
finally:
    print(json.dumps(sorted(name for name in sys.modules if "." not in name)), file=sys.stderr)
"""


def run(*arguments: str) -> tuple[str, set[str]]:
    """What the command prints, and the top-level modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [(), *[(name,) for name in COMMANDS]], ids=" ".join)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...], option: str) -> None:
    printed, modules = run(*arguments, option)
    assert printed.startswith("Usage: scalerl-mini")
    assert "Example: scalerl-mini" in printed
    assert modules & HEAVY == set()


def test_help_lists_every_command() -> None:
    printed, _ = run("--help")
    assert all(name in printed for name in COMMANDS)


def test_version() -> None:
    printed, modules = run("--version")
    assert printed.startswith("scalerl-mini, version ")
    assert modules & HEAVY == set()


def test_this_test_can_fail() -> None:
    _, modules = run("train", "--dry-run")
    assert "pydantic" in modules
    assert "torch" not in modules
