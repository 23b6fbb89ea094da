"""Writing to the disk: whole files or none, and one clear line when the disk is full, read-only or gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalerl_mini.errors import UserError

_REMEDY = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space or raise your quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "make the disk writable",
    errno.EACCES: "make it writable for you",
    errno.EPERM: "make it writable for you",
    errno.ENOENT: "do not move or delete a run folder while its run goes on",
    errno.EIO: "check the disk",
}


def flush(path: Path) -> None:
    """Have the kernel write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file in one move: whoever reads it, also after a power cut, sees the old content or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    flush(temporary)
    os.replace(temporary, path)
    flush(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError inside becomes a UserError that names `path`, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDY.get(error.errno or 0, "see to the disk")
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"cannot write {path}: {reason}; {remedy}, then go on with train --resume") from error
