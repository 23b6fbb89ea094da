"""Shared memory: a file under /dev/shm, mapped by every process that needs it.

Why not `multiprocessing.shared_memory`: its resource tracker unlinks a segment when a process that merely attached
exits. Here the creator owns the name, and only `unlink`, `unlink_all` and `segment_names.clear_stale` remove it.

The space is reserved before the first byte is touched, because on a full tmpfs (Docker gives /dev/shm 64 MB) a plain
`ftruncate` succeeds and the first write dies of SIGBUS without a traceback. When /dev/shm is missing or too small the
segment becomes an ordinary file in `fallback_dir`: slower, same behaviour, and said aloud.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from scalerl_mini.errors import UserError

SHM_DIR = Path("/dev/shm")
MIB = 1024 * 1024
_LOCK_POLL_S = 0.001
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = logging.getLogger(__name__)


def free_bytes(directory: Path | None) -> int:
    """Bytes an ordinary user may still write in `directory`; 0 when it is missing or read-only."""
    if directory is None or not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        return 0
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def lock_waiters() -> set[int]:
    """Ids of the processes of this pid namespace that wait for somebody's lock just now; a stopped one does not."""
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        return {int(line.split()[5]) for line in file if line.split()[1] == "->"}
    return set()


class Segment:
    """A mapped file of `size` bytes.

    Attributes:
        array: the whole mapping, uint8 [size], writable, shared with every process that attached.
        path: the file; hand this to other processes, it is valid for `attach` wherever the file lies.
        file_backed: True when the segment lies in the fallback folder instead of /dev/shm.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.file_backed = path.parent != SHM_DIR
        self._descriptor = descriptor
        self._threads = threading.Lock()
        size = os.fstat(descriptor).st_size
        self.array: np.ndarray = np.frombuffer(mmap.mmap(descriptor, size), dtype=np.uint8)

    @classmethod
    def create(cls, name: str, size: int, fallback_dir: Path | None = None) -> Segment:
        """Create a zeroed segment of `size` bytes; FileExistsError when the name is taken.

        Raises UserError when neither /dev/shm nor `fallback_dir` has room, naming what was wanted and available.
        """
        if size <= 0 or "/" in name:
            raise ValueError(f"a segment needs a positive size and a plain name, got {size} and {name!r}")
        for directory in (SHM_DIR, fallback_dir):
            descriptor = _reserve(directory, name, size)
            if directory is None or descriptor is None:
                continue
            segment = cls(directory / name, descriptor)
            if segment.file_backed:
                log.warning("%s: %s", segment.path, _shortage(name, size, None) + "; using a file, which is slower")
            return segment
        raise UserError(_shortage(name, size, fallback_dir) + "; enlarge /dev/shm (docker run --shm-size=...), free "
                        "disk space, or lower rollout.max_new_tokens, rollout.group_size or pipeline.k")  # fmt: skip

    @classmethod
    def attach(cls, path_or_name: Path | str) -> Segment:
        """Map an existing segment; a bare name is looked for in /dev/shm. FileNotFoundError when it is gone."""
        path = Path(path_or_name)
        if path.parent == Path():
            path = SHM_DIR / path
        return cls(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    @contextmanager
    def lock(self, deadline_s: float | None = None) -> Iterator[None]:
        """Exclusive among all processes (and threads); the kernel releases it when the holder dies. Not reentrant.

        A holder that is stopped but not dead blocks the others until the supervisor misses its heartbeat and kills it.
        So the launcher itself must not wait for ever: TimeoutError after `deadline_s`.
        """
        with self._threads:
            self._acquire(deadline_s)
            try:
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _acquire(self, deadline_s: float | None) -> None:
        if deadline_s is None:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        else:
            end = time.monotonic() + deadline_s
            while not self._try_acquire():
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.path} was locked for {deadline_s:g} s")
                time.sleep(_LOCK_POLL_S)

    def _try_acquire(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let go of the mapping in this process (views that are still held keep it alive); safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.array = np.empty(0, dtype=np.uint8)

    def unlink(self) -> None:
        """Remove the name; processes that have it mapped keep their mapping. Safe to call twice."""
        self.path.unlink(missing_ok=True)


def _reserve(directory: Path | None, name: str, size: int) -> int | None:
    """Descriptor of a new file with all its pages reserved, or None when there is no room."""
    if directory is None or free_bytes(directory) < size:
        return None
    path = directory / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        path.unlink()
        if error.errno in _NO_ROOM:
            return None
        raise
    return descriptor


def _shortage(name: str, size: int, fallback_dir: Path | None) -> str:
    text = f"shared memory {name} needs {size / MIB:.1f} MiB, {SHM_DIR} has {free_bytes(SHM_DIR) / MIB:.1f} MiB free"
    if fallback_dir is not None:
        text += f" and {fallback_dir} {free_bytes(fallback_dir) / MIB:.1f} MiB"
    return text
