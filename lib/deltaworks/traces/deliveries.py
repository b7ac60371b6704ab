"""The queue between a driver and the exporter of its traces: what is too slow or down delays no batch and ends none."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
CAPACITY = 64
"""Batches that wait; more are dropped."""
_CLOSE_S = 5.0
_log = logging.getLogger(__name__)


class Deliveries(Generic[T]):
    """Delivers one after the other, from a thread of its own.

    What cannot be delivered, or finds the queue full, is dropped and counted; the log says once when that begins and
    once when it is over. `dropped` counts from the start of the driver.

    Args:
        deliver: delivers one; returns what is wrong, or None. It may raise, and take long.
        where: names the receiver in the log.
        capacity: how many may wait.
        close_s: how long `close` waits for those.
        at_end: is called when nothing is delivered any more, which may be after `close`.
        hide: takes secrets out of what the log says is wrong.
    """

    def __init__(
        self,
        deliver: Callable[[T], str | None],
        where: str,
        *,
        capacity: int = CAPACITY,
        close_s: float = _CLOSE_S,
        at_end: Callable[[], None] = lambda: None,
        hide: Callable[[str], str] = str,
    ) -> None:
        self._deliver, self._where, self._capacity, self._close_s = deliver, where, capacity, close_s
        self._at_end, self._hide = at_end, hide
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[T] = deque()
        self._going_out = 0
        self._dropped = 0
        self._closing = False
        self._failing = False
        """Whether the log has said so."""
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many were dropped."""
        return self._dropped

    def put(self, item: T) -> None:
        """Takes one to deliver; never waits."""
        with self._changed:
            if self._closing or len(self._waiting) >= self._capacity:
                self._dropped += 1
                problem = None if self._failing else "they come faster than they can be delivered"
                self._failing = True
            else:
                self._waiting.append(item)
                self._changed.notify()
                return
        if problem is not None:
            self._warn(problem)

    def close(self) -> None:
        """Delivers what waits, for a short while; the rest is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._close_s)
        with self._changed:
            left = len(self._waiting) + self._going_out
            self._waiting.clear()
            self._dropped += left
            self._going_out = 0
        if left:
            _log.warning("traces of %d batches were not delivered to %s before the end", left, self._where)

    def _run(self) -> None:
        try:
            self._deliver_all()
        finally:
            self._at_end()

    def _deliver_all(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closing:
                        return
                    self._changed.wait()
                item = self._waiting.popleft()
                self._going_out = 1
            try:
                problem = self._deliver(item)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            self._note(problem)

    def _note(self, problem: str | None) -> None:
        with self._changed:
            if not self._going_out:  # `close` has given it up
                return
            self._going_out = 0
            self._dropped += problem is not None
            is_failing = problem is not None or (self._failing and bool(self._waiting))  # over once all have arrived
            changed, self._failing = self._failing != is_failing, is_failing
            dropped = self._dropped
        if changed and problem is not None:
            self._warn(problem)
        elif changed:
            _log.warning("traces are delivered to %s again; those of %d batches were dropped", self._where, dropped)

    def _warn(self, problem: str) -> None:
        said = self._hide(problem)
        _log.warning("traces are not delivered to %s: %s. The stream goes on without them.", self._where, said)
