"""What the C library does with memory that torch gives back on the CPU.

glibc keeps freed blocks of up to 32 MiB for itself and fills the holes with smaller ones, so a process holds more than its
tensors ever took: measured .15 to .34 of what a step allocates and frees, and as much again with gradient checkpointing,
whose point is lost by that. Below a fixed threshold of block size everything goes back to the kernel at once, for more page
faults (1.5 times the CPU time of a step on one model of 8.5 M parameters).
"""

from __future__ import annotations

import ctypes

KEPT_SHARE = 0.22  # of what a step allocates and frees; about the mean of seven measured models
THRESHOLD = 64 * 1024  # bytes
_M_MMAP_THRESHOLD = -3


def give_back_freed_blocks() -> bool:
    """Have blocks above THRESHOLD go back to the kernel when they are freed; False where the C library has no `mallopt`."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, THRESHOLD))
    except (AttributeError, OSError, TypeError):
        return False
