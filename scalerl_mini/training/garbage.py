"""Python's own memory, kept flat over long runs.

A full collection comes by itself only when a quarter of all objects are new, and a process that has loaded torch holds
half a million: in a thousand steps there is none. Until then unreachable cycles (from the
writing of JSON, at each checkpoint) and the interpreter's free lists of small tuples, lists and dicts pile up, some 400
bytes a step at first. So what the start has made is set aside as permanent, which makes a full collection a matter of
milliseconds, and the trainer asks for one when it pauses for an evaluation.
"""

from __future__ import annotations

import gc


def set_aside() -> None:
    """Call once in a process of its own, when all is built: nothing of what exists now is ever looked at again."""
    gc.collect()
    gc.freeze()


def collect() -> None:
    """A full collection, which also empties the free lists. Nothing in a process that has set nothing aside, such as a
    test's, where it would take a second."""
    if gc.get_freeze_count():
        gc.collect()
