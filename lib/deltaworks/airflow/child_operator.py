"""The operators whose work is a command of deltaworks in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from deltaworks.airflow.child import Child
from deltaworks.control.logs import why
from deltaworks.exits import CONFLICT, LEASE, NO_RESTART
from deltaworks.settings import Settings

_LINES = 5
_DIFFERS, _USAGE = 1, 2
_REPEAT_CANNOT_HELP = (NO_RESTART - {LEASE, CONFLICT}) | {_DIFFERS, _USAGE}
"""Exit codes. Without the conflicts: another process that works on the same soon ends."""


class ChildOperator(BaseOperator):
    """Runs a command at a time; its output is the log of the task.

    However the task ends, no part of the child survives (see `child`).
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._child: Child | None = None

    def run_child(self, settings: Settings, name: str, log: Path, command: Sequence[str]) -> int:
        """Runs a command to its end; returns its exit code.

        Args:
            settings: name the folder of the registrations, and are handed on to the child.
            name: name of the process.
            log: file that its output is appended to.
            command: the program and its arguments.
        """
        self._child = Child(settings.run, name, log, env=settings.process_environment())
        return self._child.execute(command, lambda line: self.log.info("%s", line))

    def failure(self, what: str, code: int, log: Path) -> AirflowException:
        """Makes the exception for a child that has failed; it forbids a retry where that cannot help.

        Args:
            what: what the child did.
            code: its exit code; negative if a signal ended it.
            log: its output.
        """
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        begin = 0 if self._child is None else self._child.begin
        text = "\n".join([f"{what} {ended}:", *why(log, after=begin)[-_LINES:]])
        return AirflowFailException(text) if code in _REPEAT_CANNOT_HELP else AirflowException(text)

    def on_kill(self) -> None:
        """Called in the main thread, whatever that is doing."""
        if self._child is not None:
            self._child.end()
