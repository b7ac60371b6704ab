"""A replay in a process of its own that gets SIGKILL: `python -m tests.hosts.killed_replay FILE POINT TIMES`.

The file has what `ReplayHost` wants, and the steps; without a point it runs to its end.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path

from deltaworks import faults
from deltaworks.runtime.replay.executors import InProcess
from deltaworks.runtime.replay.host import ReplayHost


def main(file: Path, wanted: str | None = None, times: int = 0) -> None:
    """See above."""
    options, steps = pickle.loads(file.read_bytes())
    reached = 0

    def hook(point: str) -> None:
        nonlocal reached
        reached += point.startswith(str(wanted))
        if reached == times:
            os.kill(os.getpid(), signal.SIGKILL)

    if wanted is not None:
        faults.arm(hook)
    print(ReplayHost(executor=InProcess(), **options).run(steps).last_batch)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]))
