"""Committed entries of a store in time order, read one span of time after the other."""

from __future__ import annotations

from collections import deque

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StateReader

_AHEAD = 256


class CommittedByTime:
    """Reads a few hundred entries ahead, so that a span costs no separate scan. Valid until the next commit."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self._ahead: deque[tuple[int, bytes, bytes]] = deque()
        self._unread_from_ms: int | None = 0
        """The first time that has not been read; None: all is read."""

    def take(self, from_ms: int, to_ms: int) -> list[tuple[int, bytes, bytes]]:
        """`(time_ms, key, value)` of a span, both bounds inclusive, by time, then key. Spans may only move forward."""
        taken: list[tuple[int, bytes, bytes]] = []
        ahead = self._ahead
        while True:
            while ahead and ahead[0][0] <= to_ms:
                entry = ahead.popleft()
                if entry[0] >= from_ms:
                    taken.append(entry)
            if ahead or self._unread_from_ms is None or self._unread_from_ms > to_ms:
                return taken
            self._read(max(from_ms, self._unread_from_ms))

    def _read(self, from_ms: int) -> None:
        """Reads ahead; all entries of a time are read together."""
        last_ms = from_ms
        for key, value in self._reader.scan_time(from_ms, None):
            time_ms = int.from_bytes(key[-TIME_BYTES:], "big")
            if len(self._ahead) >= _AHEAD and time_ms != last_ms:
                self._unread_from_ms = time_ms
                return
            self._ahead.append((time_ms, key, value))
            last_ms = time_ms
        self._unread_from_ms = None
