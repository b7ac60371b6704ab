"""Runs a command that must not outlive the process that started it.

`python -m deltaworks.stack.tether [--signal SIGINT] [--user NAME] PARENT COMMAND...`: the kernel sends the signal
(SIGTERM by default) when the parent's thread that started this process ends, for whatever reason. The setting survives
`exec` but not a change of user, so the user is changed here first. It has no effect on systems without this feature
(other than Linux).

This module imports nothing of deltaworks, so it can run as a file, which is faster.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

COMMAND = (sys.executable, "-I", "-S", __file__)
"""The command prefix that runs this file; options, the parent's pid and the command follow."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Becomes the command."""
    arguments = sys.argv[1:]
    options: dict[str, str] = {}
    while arguments[0].startswith("--"):
        options[arguments[0]] = arguments[1]
        del arguments[:2]
    parent, command = int(arguments[0]), arguments[1:]
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background processes ignore it
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    if "--user" in options:
        _become(options["--user"])
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.Signals[options.get("--signal", "SIGTERM")])
    if os.getppid() != parent:  # the parent died before the setting took effect
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
