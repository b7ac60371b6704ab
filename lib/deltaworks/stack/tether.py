"""Runs a command that shall not outlive the process that started it.

`python -m deltaworks.stack.tether [--signal SIGINT] [--user NAME] PARENT COMMAND...`: the kernel sends the signal
(SIGTERM unless told) when the parent's thread that started this one ends, however that happens. The setting survives
`exec`, but not a change of user: so the user is changed here, before. Without effect where the system has no such
thing (not Linux).

Imports nothing of deltaworks, so that it can be run as a file, which is quicker.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

COMMAND = (sys.executable, "-I", "-S", __file__)
"""Starts it without deltaworks; what follows are options, the parent's pid and the command."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Becomes the command."""
    arguments = sys.argv[1:]
    options: dict[str, str] = {}
    while arguments[0].startswith("--"):
        options[arguments[0]] = arguments[1]
        del arguments[:2]
    parent, command = int(arguments[0]), arguments[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in what a shell starts in the background
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    if "--user" in options:
        _become(options["--user"])
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.Signals[options.get("--signal", "SIGTERM")])
    if os.getppid() != parent:  # it died before the kernel was told
        sys.exit(143)
    os.execvp(command[0], command)


def _become(name: str) -> None:
    import pwd

    user = pwd.getpwnam(name)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


if __name__ == "__main__":
    main()
