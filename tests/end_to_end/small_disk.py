"""A disk of a few megabytes: a tmpfs that only an ancestor and its launchers see, and the test through /proc."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.forked import Ancestor

ELSEWHERE = ("unshare", "--map-root-user", "--mount")  # mounts there are seen by nobody else


def may_mount(place: Path) -> bool:
    """Whether this process may mount a tmpfs on `place`, for itself alone."""
    command = [*ELSEWHERE, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        return not subprocess.run(command, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


class SmallDisk:
    """Use as a context manager. `path`: where its launchers find the disk; `seen`: where this process does."""

    def __init__(self, path: Path, size: str) -> None:
        path.mkdir()
        self.path = path
        mount = f"mount -t tmpfs -o size={size} tmpfs {path}"
        self.ancestor = Ancestor((*ELSEWHERE, "sh", "-c", mount + ' && exec "$@"', "sh"))
        self.seen = Path(f"/proc/{self.ancestor.process.pid}/root{path}")

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.ancestor.__exit__()

    def fill(self) -> None:
        """Leave no byte free."""
        self.ancestor.ask(run=["dd", "if=/dev/zero", f"of={self.path}/filler", "bs=4k", "status=none"])

    def free(self) -> None:
        (self.seen / "filler").unlink()

    def remount(self, options: str) -> None:
        """ "ro" or "rw"; AssertionError while somebody writes to it."""
        assert self.ancestor.ask(run=["mount", "-o", f"remount,{options}", str(self.path)]) == 0
