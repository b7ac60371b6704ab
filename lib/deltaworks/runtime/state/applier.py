"""Applies the changes of a batch to the local stores when no further batch comes.

A thread of the worker looks for Spark's note that the batch is committed, and applies the changes that wait in memory.
It is only an optimisation: the next batch does the same, from memory or from Spark's state. Spark's note does not say
whose attempt was committed. If it was another one, its version differs too, and the next batch on this machine
rebuilds the store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from deltaworks import clock
from deltaworks.errors import StateError
from deltaworks.faults import reach
from deltaworks.runtime.state.local_store import LocalStore
from deltaworks.runtime.state.recovery import Pending

_POLL_S = 0.25
_QUIET_S = 1.0
"""How long changes wait before the thread looks: on a busy stream the next batch applies them first."""
_log = logging.getLogger(__name__)


class Waiting(Protocol):
    """A task whose changes may wait."""

    local: LocalStore
    pending: Pending | None
    lock: threading.Lock


class Applier:
    """Applies pending changes of the tasks in one process."""

    def __init__(self, commits: Path, tasks: Callable[[], Sequence[Waiting]]) -> None:
        """
        Args:
            commits: folder with one file per batch that Spark has committed.
            tasks: the tasks of this process.
        """
        self._commits, self._tasks = commits, tasks
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="applier", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Something waits."""
        self._wanted.set()

    def close(self) -> None:
        """Ends the thread; changes that wait are dropped."""
        self._closed.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            self._wanted.clear()
            while not self._closed.wait(_POLL_S) and self.apply():
                pass

    def apply(self) -> bool:
        """Applies the changes whose batch Spark has committed.

        Returns:
            Whether something still waits.
        """
        waiting = [self._settle(task) for task in self._tasks()]
        return any(waiting)

    def _settle(self, task: Waiting) -> bool:
        with task.lock:
            pending = task.pending
            if pending is None:
                return False
            young = clock.ticks_s() - pending.since_s < _QUIET_S
            if young or not (self._commits / str(pending.batch)).is_file():
                return True
            task.pending = None  # even if it fails: the next batch finds the changes in Spark's state
            try:
                reach("store.before_apply")
                task.local.commit(pending.changes, pending.version, pending.base)
                reach("store.after_apply")
            except StateError as error:
                if not _has_gone_on(task.local, pending):
                    _log.warning("Changes of batch %d are left to the next batch: %s", pending.batch, error)
            except Exception:  # nothing depends on this thread, so no error ends it
                _log.exception("Changes of batch %d are left to the next batch", pending.batch)
            return False


def _has_gone_on(local: LocalStore, pending: Pending) -> bool:
    """Whether another process has had the task since, and found the changes in Spark's state."""
    try:
        return local.version().number >= pending.version.number
    except StateError:
        return False
