"""The worker process itself: builds the task, bounds its own memory, then grades what it is sent, line by line.

Started by `grading_process`, from which it takes [name, options, memory] and then [part, prompt, completion] messages.
Its answers are {"reward", "error", "again"}; `again` asks for a fresh process, after memory ran out in this one.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import tomllib
from pathlib import Path
from typing import IO

from scalerl_mini.runtime.child import die_with_parent
from scalerl_mini.tasks import Task, load_task
from scalerl_mini.tasks.grade import Verdict, grade

MIB = 1024**2
PAGE = resource.getpagesize()


def main(descriptor: int, parent: int) -> None:
    """Serve until the other side closes the socket `descriptor` or the process `parent` dies."""
    die_with_parent(parent)
    stream = socket.socket(fileno=descriptor).makefile("rw", encoding="ascii", newline="\n")
    name, options, memory_mib = json.loads(stream.readline())
    try:
        task = load_task(name, **tomllib.loads(options)["options"])
        limit_memory(memory_mib)
    except (Exception, SystemExit) as error:
        say(stream, f"{type(error).__name__}: {error}")
        return
    say(stream, None)
    for line in stream:
        say(stream, answer(task, *json.loads(line)))


def answer(task: Task, part: str, prompt: int, completion: str) -> dict[str, object]:
    """The grade of one completion as plain JSON."""
    result = grade(task, getattr(task, part)[prompt], completion)
    return {
        "reward": result.reward,
        "error": result.reason if result.verdict == Verdict.ERROR else None,
        "again": "MemoryError" in result.reason,
    }


def say(stream: IO[str], message: object) -> None:
    """One line to the other side."""
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def limit_memory(mib: int) -> None:
    """Let this process map `mib` MiB more than it has now; a core is never dumped."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (mapped + mib * MIB,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
