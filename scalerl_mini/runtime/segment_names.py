"""Names of shared-memory segments, and who may remove them.

Every segment of a run begins with the same prefix, `scalerl-<pid>-<start>-<namespace>-<random>`, of its launcher: pid
and start time (clock ticks since boot) tell a dead launcher from a new process that got its pid again, the pid
namespace tells containers apart that share /dev/shm (`docker --ipc=host`), and the random part keeps two runs of one
launcher apart. So the next start can remove what a run killed with SIGKILL left behind, and can never touch a living
one. Segments of another namespace cannot be judged from here and are left alone.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from scalerl_mini.runtime import segment

_NAME = re.compile(r"scalerl-(?P<pid>\d+)-(?P<start>\d+)-(?P<namespace>\d+)-[0-9a-f]{8}(\.|$)")

log = logging.getLogger(__name__)


def run_prefix() -> str:
    """A fresh prefix for the segments of one run whose launcher is this process."""
    pid = os.getpid()
    return f"scalerl-{pid}-{start_time(pid)}-{_namespace()}-{secrets.token_hex(4)}"


def start_time(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot; None when it is dead, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text[text.rindex(")") + 2 :].split()
    return None if state in "ZX" else int(fields[18])


def clear_stale(fallback_dir: Path | None = None) -> list[str]:
    """Unlink the segments of dead launchers in /dev/shm (and `fallback_dir`); returns the names removed."""
    stale = [path for path in _segments(fallback_dir) if _is_stale(path.name)]
    removed = [path.name for path in stale if _unlink(path)]
    if removed:
        log.info("removed %d shared-memory segments of dead runs: %s", len(removed), ", ".join(removed))
    return removed


def unlink_all(prefix: str, fallback_dir: Path | None = None) -> None:
    """Unlink every segment of the run with this prefix; the launcher calls it in `finally`."""
    for path in _segments(fallback_dir):
        if path.name == prefix or path.name.startswith(prefix + "."):
            _unlink(path)


def _segments(fallback_dir: Path | None) -> Iterator[Path]:
    for directory in (segment.SHM_DIR, fallback_dir):
        if directory is not None and directory.is_dir():
            yield from list(directory.glob("scalerl-*"))


def _is_stale(name: str) -> bool:
    match = _NAME.match(name)
    if match is None or match["namespace"] != _namespace():
        return False
    return start_time(int(match["pid"])) != int(match["start"])


def _namespace() -> str:
    """Number of this process's pid namespace: "pid:[4026531836]" -> "4026531836"."""
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")


def _unlink(path: Path) -> bool:
    """Remove one file; False when another start was faster or the file is another user's."""
    try:
        path.unlink()
    except (FileNotFoundError, PermissionError):
        return False
    return True
