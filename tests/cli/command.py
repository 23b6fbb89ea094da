"""Run the command line as a user does: a process, its exit code, and both streams."""

import subprocess
import sys


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from scalerl_mini.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
