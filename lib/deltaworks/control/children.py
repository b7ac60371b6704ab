"""A process that a driver starts for what must not be in its own: other code, or a JVM with other settings.

The child has our output and our variables, which a job may read. It never outlives us.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

_POLL_S = 0.05
_TETHER = (sys.executable, "-m", "deltaworks.stack.tether", "--signal", "SIGKILL")
"""The child dies with us at once: a successor has to find the lease free, and ends the JVM that is left."""


class ToldToStopError(Exception):
    """Somebody has told the driver to stop while it did something else; no failure."""


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    is_told: Callable[[], bool],
    begun: Callable[[int], None] = lambda _: None,
) -> int:
    """Runs a child until it ends; hands a request to stop on to it, as SIGTERM.

    Args:
        command: of the child.
        environment: variables that it has beside ours.
        is_told: whether we are to stop; see `stops_noted`.
        begun: called with its process id.

    Returns:
        How it ended: an exit code, or a signal, less than 0.
    """
    child = subprocess.Popen([*_TETHER, str(os.getpid()), *command], env={**os.environ, **environment})
    try:
        begun(child.pid)
        asked = False
        while child.poll() is None:
            if not asked and is_told():
                asked = True
                child.send_signal(signal.SIGTERM)
            time.sleep(_POLL_S)
    except BaseException:
        child.kill()
        child.wait()
        raise
    return child.returncode


@contextmanager
def stops_noted() -> Iterator[list[int]]:
    """Collects the signals that tell us to stop, instead of ending this process."""
    told: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield told
        return

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
