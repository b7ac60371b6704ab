"""What a host must offer so that stores survive: ordered bytes per store, read here and written at commit.

A store never writes on its own. It reads committed entries through `StateReader`, keeps its changes,
and hands them over at `Task.commit()` as `StoreChanges`. The host makes all stores of a task durable in one
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import msgspec

NEVER = -1
"""Newest time of a store that nothing was ever put into."""
FOR_EVER_MS = 1 << 62
"""Retention of a store from which nothing expires."""


class StateReader(Protocol):
    """The committed entries of one store of one task."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `start <= key < stop` in ascending byte order; None is the end."""

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        """Timed stores only: entries with `start_ms <= time < stop_ms`, ordered by time, then key.

        The time of an entry is the last 8 bytes of its key, big-endian.
        """


@runtime_checkable
class ReversibleReader(StateReader, Protocol):
    """A reader that also goes from the last entry to the first."""

    def scan_back(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Like `scan`, in descending byte order."""


class StoreChanges(msgspec.Struct, frozen=True, array_like=True):
    """The changes of one batch in one store."""

    entries: list[tuple[bytes, bytes | None]]
    """Last value per key; None deletes."""
    expire_before_ms: int | None = None
    """Timed stores only, applied after `entries`: every entry whose time is below this is deleted."""


class StateBackend(Protocol):
    """The stores of one task as its host keeps them."""

    def reader(self, store: str) -> StateReader: ...
