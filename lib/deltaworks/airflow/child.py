"""A child process for the heavy part of a task; its output is the task's log.

Spark and Great Expectations do not belong in Airflow's processes: they take seconds to import and gigabytes to run.
The child has its own session and is registered in `<home>/run`, like every process that the stack starts. So whatever
ends the task also ends the whole child, down to Spark's JVM:

| what happens | what ends the child |
|---|---|
| the task is marked, cleared or timed out, or its heartbeat stops | `end`, called by `on_kill` or at the end of a try |
| the task is killed (SIGKILL, out of memory) | the kernel, which sends SIGTERM to the child |
| a part of the child survives all that | the next try, before it starts its own child |
| `deltaworks down` is called | the registration, which leads `down` to it |
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from deltaworks import processes

KIND = "task"
_POLL_S = 0.1
_PATIENCE_S = 2.0
"""Airflow kills a task five seconds after it asks it to end; the child has to be gone by then."""


class Child:
    """Runs one command at a time, under one name.

    Args:
        run: folder of the registrations.
        name: name of the process; only one process has it at a time, whichever task started it.
        log: file that the output is appended to.
        env: the whole environment of the process.
    """

    def __init__(self, run: Path, name: str, log: Path, env: Mapping[str, str]) -> None:
        self._run, self._name, self._log, self._env = run, name, log, env
        self._entry: processes.Registered | None = None
        self.begin = 0
        """Offset in the log, in bytes, where the output of the last command begins."""

    def execute(self, command: Sequence[str], say: Callable[[str], None]) -> int:
        """Runs a command to its end.

        Args:
            command: the program and its arguments.
            say: called with each complete line of the output.

        Returns:
            Its exit code; negative if a signal ended the process, as in `subprocess`.
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
        """Ends the whole child; does nothing if there is none."""
        entry, self._entry = self._entry, None
        if entry is not None:
            processes.stop(self._run, entry, timeout_s=_PATIENCE_S)

    def _end_earlier(self, say: Callable[[str], None]) -> None:
        earlier = processes.find(self._run, self._name)
        if earlier is not None and earlier.members():
            say("an earlier try of this task left a process; ending it first")
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


def command(*arguments: str) -> list[str]:
    """A command of deltaworks, whose output comes line by line."""
    return [sys.executable, "-u", "-m", "deltaworks.cli", *arguments]


def _exit_code(pid: int) -> int | None:
    """The exit code; None while the child runs. Another process may already have waited for a child that it ended."""
    with suppress(ChildProcessError):
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    return -signal.SIGTERM
