"""Runs a command that shall not outlive the process that started it: `python -m deltaworks.stack.tether PARENT CMD...`.

For tests: a broker must go even when pytest is killed with SIGKILL. The kernel sends SIGTERM when the parent dies;
the setting survives `exec`. Without effect where the system has no such thing (not Linux).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Becomes the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the kernel was told
        sys.exit(143)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
