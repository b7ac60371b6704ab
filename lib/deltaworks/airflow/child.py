"""A heavy part of a task as a process of its own, whose lines are the task's log.

Spark and Great Expectations do not belong into Airflow's processes: they take seconds to import and gigabytes to run.
The child is in a session of its own and registered in `<home>/run`, like all that the stack starts. So whatever ends
the task ends all of the child, down to Spark's JVM:

| what happens | who ends it |
|---|---|
| the task is marked, cleared, timed out, or its heart stops | `end`, called by Airflow (`on_kill`) or on the way out |
| the task is killed (SIGKILL, out of memory) | the kernel, which sends SIGTERM to the child |
| something of it is left nevertheless | the next try, before it starts its own |
| `deltaworks down` | the registration |
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from deltaworks import processes

KIND = "replay"
_POLL_S = 0.1
_PATIENCE_S = 2.0
"""Airflow kills a task five seconds after it has asked it to end; by then nothing of the child may be left."""


class Child:
    """One command at a time, under one name.

    Args:
        run: folder of the registrations.
        name: of the process; there is one of this name at a time, whichever task started it.
        log: file that its lines are appended to.
        env: its whole environment.
    """

    def __init__(self, run: Path, name: str, log: Path, env: Mapping[str, str]) -> None:
        self._run, self._name, self._log, self._env = run, name, log, env
        self._entry: processes.Registered | None = None
        self.begin = 0
        """Where the lines of the last command begin in the log, in bytes."""

    def execute(self, command: Sequence[str], say: Callable[[str], None]) -> int:
        """Runs a command to its end.

        Args:
            command: with its arguments.
            say: gets each line of its output, as soon as it is complete.

        Returns:
            Its exit code; that of a process that a signal has ended is negative, as that of `subprocess`.
        """
        self._end_earlier(say)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self.begin = self._log.stat().st_size if self._log.exists() else 0
        self._entry = processes.launch(
            self._run, name=self._name, kind=KIND, command=command, log=self._log, env=self._env, tethered=True
        )
        try:
            return self._follow(self._entry.pid, say)
        finally:
            self.end()

    def end(self) -> None:
        """Ends all of it; nothing happens if there is nothing."""
        entry, self._entry = self._entry, None
        if entry is not None:
            processes.stop(self._run, entry, timeout_s=_PATIENCE_S)

    def _end_earlier(self, say: Callable[[str], None]) -> None:
        earlier = processes.find(self._run, self._name)
        if earlier is not None and earlier.members():
            say("an earlier try of this task has left a process: it is ended first")
            processes.stop(self._run, earlier, timeout_s=_PATIENCE_S)

    def _follow(self, pid: int, say: Callable[[str], None]) -> int:
        with self._log.open("rb") as output:
            output.seek(self.begin)
            unfinished = b""
            while True:
                code = _exit_code(pid)
                *lines, unfinished = (unfinished + output.read()).split(b"\n")
                for line in lines:
                    say(line.decode(errors="replace").rstrip())
                if code is not None:
                    if unfinished:
                        say(unfinished.decode(errors="replace"))
                    return code
                time.sleep(_POLL_S)


def _exit_code(pid: int) -> int | None:
    """None while it runs. A child that was ended from the outside may have been waited for there."""
    with suppress(ChildProcessError):
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    return -signal.SIGTERM
