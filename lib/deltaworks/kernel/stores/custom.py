"""A store that a user wrote: an object over ordered bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

from deltaworks.kernel.stores.ordered import overlaid
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges
from deltaworks.topology.stages import StoreSpec


class CustomStore:
    """The bytes of one store of one task, and the user's object that works on them; the `OrderedBytes` it gets."""

    newest_ms = NEVER

    def __init__(self, spec: StoreSpec, reader: StateReader) -> None:
        if spec.factory is None:
            raise ValueError(f"store '{spec.name}' of a user's own needs a factory")
        self.spec = spec
        self._reader = reader
        self._updates: dict[bytes, bytes | None] = {}
        self._keys: list[bytes] = []
        """The keys of the updates, sorted."""
        self.instance: Any = spec.factory(self)

    def get(self, key: bytes) -> bytes | None:
        """See `OrderedBytes`."""
        return self._updates[key] if key in self._updates else self._reader.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """See `OrderedBytes`."""
        if key not in self._updates:
            insort(self._keys, key)
        self._updates[key] = value

    def range(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See `OrderedBytes`."""
        return self._present(self._merged(start, stop))

    def reverse_range(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See `OrderedBytes`."""
        return self._present(reversed(list(self._merged(start, stop))))

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Every entry in byte order."""
        return self.range()

    def flush_instance(self) -> None:
        """Lets the user's object write what it holds back, if it has a method `flush`."""
        flush = getattr(self.instance, "flush", None)
        if flush is not None:
            flush()

    def take_changes(self) -> StoreChanges | None:
        """The entries written since the last call; None if there are none."""
        changed = [
            (key, self._updates[key])
            for key in self._keys
            if self._updates[key] is not None or self._reader.get(key) is not None
        ]
        self._updates, self._keys = {}, []
        return StoreChanges(changed) if changed else None

    def _merged(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        last = len(self._keys) if stop is None else bisect_left(self._keys, stop)
        written = [(key, self._updates[key]) for key in self._keys[bisect_left(self._keys, start) : last]]
        return overlaid(self._reader.scan(start, stop), written)

    @staticmethod
    def _present(entries: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value in entries if value is not None)
