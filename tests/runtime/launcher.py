"""A small launcher, run as a program by the tests: `python -m tests.runtime.launcher SHM FOLDER GRACE ROLE...`.

It starts the roles (names of functions in processes.py) with its segments in SHM (a private place, because every start
on the machine clears stale segments in /dev/shm), writes `FOLDER/ready.json`, polls until the roles end, and behaves
towards Ctrl-C and failures as the command line does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from scalerl_mini.runtime import ChildFailed, Control, Role, Supervisor, clear_stale, run_prefix, segment, unlink_all
from tests.runtime import processes


def run(folder: Path, grace_s: float, functions: list[str]) -> None:
    names = [f"{function}-{index}" for index, function in enumerate(functions)]
    cleared = clear_stale()
    prefix = run_prefix()
    try:
        control = Control.create(prefix + ".control", names)
        roles = [
            Role(name, getattr(processes, function), (name, control.path))
            for name, function in zip(names, functions, strict=True)
        ]
        with Supervisor(roles, control, folder, heartbeat_timeout_s=60.0, grace_s=grace_s) as supervisor:
            state = {"prefix": prefix, "pids": [supervisor.pid(name) for name in names], "cleared": cleared}
            (folder / "ready.part").write_text(json.dumps(state))
            os.rename(folder / "ready.part", folder / "ready.json")
            while not supervisor.poll():
                time.sleep(0.01)
    finally:
        unlink_all(prefix)


def main() -> None:
    try:
        segment.SHM_DIR = Path(sys.argv[1])
        run(Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
    except KeyboardInterrupt:
        sys.exit(130)
    except ChildFailed as failed:
        print(failed, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
