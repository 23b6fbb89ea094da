"""How long a test waits before it takes something for hung: longer on a machine that is shared with many others.

A deadline that is right on an idle machine is wrong by the factor by which the machine is overbooked, so it is counted
in seconds on an idle core. It matters only when a test fails; how long a run may take is never asserted with it.
"""

from __future__ import annotations

import os


def patience(seconds: float) -> float:
    """`seconds` on an idle machine, in seconds of this one: times the processes that share a core just now."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
