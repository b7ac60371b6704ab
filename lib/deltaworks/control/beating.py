"""Heartbeats while a driver does something long: publishing, rolling back, a snapshot.

The loop of a driver beats between its steps. A thread that always beat would make a hanging driver look alive. This
thread beats only within a block that is known to be long, and only for a limited time.

```python
with Beating(lambda: self._write_beat(self._beat.state)) as beating:
    while ...:
        with beating.during("commands", at_most_s=600.0):
            self._obey(committer)
```
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from deltaworks import clock
from deltaworks.errors import FencedError

EVERY_S = 1.0
AT_MOST_S = 3_600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Block:
    """A long block in progress."""

    what: str
    begun_s: float
    at_most_s: float


class Beating:
    """A thread that beats within the blocks of `during`; it ends with the `with`.

    Args:
        beat: writes a heartbeat; called from the thread, never concurrently.
        every_s: pause before each beat of a block.
    """

    def __init__(self, beat: Callable[[], None], *, every_s: float = EVERY_S) -> None:
        self._beat, self._every_s = beat, every_s
        self._lock = threading.Lock()  # guards what follows
        self._block: _Block | None = None
        self._fenced: FencedError | None = None

        self._complained = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Beating:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    @contextmanager
    def during(self, what: str, *, at_most_s: float = AT_MOST_S) -> Iterator[None]:
        """Beats during a long block, until it ends or has lasted too long.

        Args:
            what: name of the block, for the log.
            at_most_s: time after which the block counts as hanging, and the beats stop to show it.

        Raises:
            FencedError: at the end of the block; a newer generation took over meanwhile.
        """
        with self._lock:
            self._block = _Block(what, clock.ticks_s(), at_most_s)
        try:
            yield
        finally:
            with self._lock:
                self._block = None
        with self._lock:
            if self._fenced is not None:
                raise self._fenced

    def _run(self) -> None:
        told: _Block | None = None
        while not self._end.wait(self._every_s):
            with self._lock:
                block, fenced = self._block, self._fenced
            if block is None or fenced is not None:
                continue
            lasted_s = clock.ticks_s() - block.begun_s
            if lasted_s > block.at_most_s:
                if told is not block:
                    _log.warning("%s has lasted for %.0f s; no more heartbeats until it ends", block.what, lasted_s)
                    told = block
            elif lasted_s >= self._every_s:
                self._beat_once(block)

    def _beat_once(self, block: _Block) -> None:
        try:
            self._beat()
            self._complained = False
        except FencedError as error:
            with self._lock:
                self._fenced = error
        except Exception as error:  # such as a full disk, which the loop will report if it lasts
            if not self._complained:
                _log.warning("no heartbeat during %s: %s", block.what, error)
                self._complained = True
