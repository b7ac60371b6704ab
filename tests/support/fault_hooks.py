"""What the tests do with the fault points of driver and workers.

The folder of a run (environment variable `DELTAWORKS_TEST_FAULTS`) is all that test and processes share:

- `trace/<pid>.log`: every point this process reached, one line `time point`; the last line is the phase a kill hit;
- `inject/<point>`: an order, carried out by the first process that reaches the point: `raise`, `kill` or
  `wait`;
- `done/<point>`: the order was carried out; who waits goes on when somebody removes it;
- `mutation`: names of `tests.mutation.MUTATIONS`, with ` + ` between them, which every process applies to itself.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from deltaworks import faults

VARIABLE = "DELTAWORKS_TEST_FAULTS"
AND = " + "
"""Between the names of several mutations."""
HOOK = "tests.support.fault_hooks:install"


class InjectedFault(Exception):
    """The test made this attempt fail."""


def install() -> None:
    """Called once in the driver and in every worker (`Settings.fault_hook`)."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    root = Path(folder)
    for name in ("trace", "inject", "done"):
        (root / name).mkdir(parents=True, exist_ok=True)
    chosen = root / "mutation"
    if chosen.exists():
        from tests import mutation

        for name in chosen.read_text().strip().split(AND):
            mutation.apply(name)
    faults.arm(_Hook(root))


class _Hook:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._trace = (root / "trace" / f"{os.getpid()}.log").open("ab", buffering=0)

    def __call__(self, point: str) -> None:
        self._trace.write(f"{time.time():.6f} {point}\n".encode())
        order = self._root / "inject" / point
        try:
            action = order.read_text()
            done = order.replace(self._root / "done" / order.name)
        except FileNotFoundError:
            return
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "wait":
            while done.exists():
                time.sleep(0.01)
            return
        raise InjectedFault(point)
