"""A disk of a few megabytes: a file system that only an ancestor and its launchers see, and the test through /proc."""

from __future__ import annotations

import os
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
        self._begin(path, ELSEWHERE, f"mount -t tmpfs -o size={size} tmpfs {path}")

    def _begin(self, path: Path, elsewhere: tuple[str, ...], mount: str) -> None:
        path.mkdir()
        self.path = path
        self.ancestor = Ancestor((*elsewhere, "sh", "-c", mount + ' && exec "$@"', "sh"))
        self.seen = Path(f"/proc/{self.ancestor.process.pid}/root{path}")

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.ancestor.__exit__()

    def fill(self) -> None:
        """Leave no byte free."""
        self.ancestor.ask(run=["dd", "if=/dev/zero", f"of={self.path}/filler", "bs=4k", "status=none"])

    def run(self, command: str) -> None:
        """A shell command where the disk is mounted, which must succeed."""
        assert self.ancestor.ask(run=["sh", "-c", command]) == 0, command

    def free(self) -> None:
        (self.seen / "filler").unlink()

    def remount(self, options: str) -> None:
        """ "ro" or "rw"; AssertionError while somebody writes to it."""
        self.run(f"mount -o remount,{options} {self.path}")

    def fail(self) -> None:
        """Read-only from now on for whatever is opened, under a run too; files that are open still take what is written."""
        self.run(f"mount --bind {self.path} {self.path} && mount -o remount,bind,ro {self.path}")

    def mend(self) -> None:
        """Undo `fail`."""
        self.run(f"umount {self.path}")


class FailingDisk(SmallDisk):
    """An ext4 in a file, as it is mounted by most: after an error of its own the kernel takes no more writes at all."""

    def __init__(self, path: Path, size: str) -> None:
        self.image = path.with_suffix(".image")
        subprocess.run(["truncate", "-s", size, str(self.image)], check=True)
        subprocess.run(["mkfs.ext4", "-q", str(self.image)], check=True)
        self.mount = f"mount -o loop,errors=remount-ro {self.image} {path}"
        self._begin(path, ("unshare", "--mount"), self.mount)

    def fail(self) -> None:
        """Have the kernel find an error: it makes the file system read-only, files that are open included."""
        self.run(f"echo 1 > /sys/fs/ext4/$(basename $(findmnt -no SOURCE {self.path}))/trigger_fs_error")

    def mend(self) -> None:
        """What an administrator would do: unmount, check, mount again."""
        self.run(f"umount {self.path}; e2fsck -fy {self.image} >/dev/null; {self.mount}")


def may_fail(place: Path) -> bool:
    """Whether this process may mount a `FailingDisk`, for itself alone, and let it fail."""
    script = (
        "truncate -s 1M image && mkfs.ext4 -q image && mkdir disk && mount -o loop image disk"
        " && test -w /sys/fs/ext4/$(basename $(findmnt -no SOURCE disk))/trigger_fs_error"
    )
    command = ["unshare", "--mount", "sh", "-c", script]
    return os.getuid() == 0 and not subprocess.run(command, cwd=place, capture_output=True, check=False).returncode
