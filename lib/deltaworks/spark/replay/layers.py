"""Global tables as of each step: one copy per machine as of the first step of a chunk, later changes in memory above.

The units of a chunk begin at the same step, so they share that copy (`GlobalTables`). Each goes on by itself, over a
layer that holds what has changed since and is forgotten at the end of the chunk. A chunk counts records of global
topics as its own, which bounds the layers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge

import msgspec

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.state import StateReader, StoreChanges
from deltaworks.spark.global_tables import GlobalTable, GlobalTables, Kept, Reader
from deltaworks.spark.local_store import Changes, Header, Stamp

_TIME_BYTES = 8


class Layers:
    """The global tables of one unit, from the position of `below` onwards."""

    def __init__(self, below: GlobalTables, pipeline: Pipeline, connect: Callable[[], Reader]) -> None:
        """
        Args:
            below: where they begin; nobody moves it meanwhile.
            pipeline: says what happens to records that fail.
            connect: makes the reader, when there is something to read.
        """
        self._connect = connect
        self._reader: Reader | None = None
        self._tables = [
            GlobalTable(table.stage, pipeline, _Layer(table.local), lambda: _Lent(self._connected()))
            for table in below.tables
        ]

    def at(self, position: bytes) -> bool:
        """As `GlobalTables.at`; positions only grow."""
        wanted = msgspec.msgpack.decode(position, type=Offsets)
        changed = [table.at(wanted) for table in self._tables]
        return any(changed)

    @property
    def stores(self) -> Mapping[str, Store]:
        """By name."""
        return {name: store for table in self._tables for name, store in table.stores.items()}

    def close(self) -> None:
        """Lets go of the connection."""
        if self._reader is not None:
            self._reader.close()

    def _connected(self) -> Reader:
        if self._reader is None:
            self._reader = self._connect()
        return self._reader


class _Lent:
    """A reader that somebody else closes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        return self._reader.read(ranges)

    def beginning(self, topic: str, partition: int) -> int:
        return self._reader.beginning(topic, partition)

    def close(self) -> None: ...


class _Layer:
    """`Kept` in memory, above entries that do not change."""

    def __init__(self, below: Kept) -> None:
        self._below, self._header = below, below.header()
        self._readers: dict[str, LayerReader] = {}

    def header(self) -> Header | None:
        return self._header

    def reader(self, store: str) -> LayerReader:
        if store not in self._readers:
            self._readers[store] = LayerReader(self._below.reader(store))
        return self._readers[store]

    def commit(self, changes: Changes, stamp: Stamp, previous: Stamp | None) -> None:
        for name, change in changes.items():
            self.reader(name).apply(change)
        self._header = Header(stamp, previous)

    def rebuild(self, history: Iterator[Changes], stamp: Stamp) -> None:
        raise AssertionError("the steps of a unit go back")

    def close(self) -> None: ...


class LayerReader:
    """`StateReader` over the entries of a store and what has changed about them since."""

    def __init__(self, below: StateReader) -> None:
        self._below = below
        self._changed: dict[bytes, bytes | None] = {}
        self._expired_ms: int | None = None
        """Entries below with a lower time are gone."""
        self._sorted: dict[bool, list[bytes]] = {}
        """Changed keys, by themselves and by time; made when they are asked for."""

    def apply(self, change: StoreChanges) -> None:
        """Makes changes."""
        before = len(self._changed)
        self._changed.update(change.entries)
        if change.expire_before_ms is not None:
            self._expired_ms = max(change.expire_before_ms, self._expired_ms or 0)
            for key in [key for key in self._changed if self._is_expired(key)]:
                del self._changed[key]
            before = -1
        if len(self._changed) != before:
            self._sorted.clear()

    def get(self, key: bytes) -> bytes | None:
        if key in self._changed:
            return self._changed[key]
        return None if self._is_expired(key) else self._below.get(key)

    def scan(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys(by_time=False)
        above = keys[bisect_left(keys, start) : None if stop is None else bisect_left(keys, stop)]
        return self._merged(above, self._below.scan(start, stop), lambda entry: entry[0])

    def scan_time(self, start_ms: int, stop_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys(by_time=True)
        stop = None if stop_ms is None else bisect_left(keys, stop_ms, key=_time)
        above = keys[bisect_left(keys, start_ms, key=_time) : stop]
        return self._merged(above, self._below.scan_time(start_ms, stop_ms), lambda entry: _by_time(entry[0]))

    def _merged(
        self,
        above: Sequence[bytes],
        below: Iterator[tuple[bytes, bytes]],
        order: Callable[[tuple[bytes, bytes]], bytes],
    ) -> Iterator[tuple[bytes, bytes]]:
        changed = ((key, value) for key in above if (value := self._changed.get(key)) is not None)
        unchanged = (entry for entry in below if entry[0] not in self._changed and not self._is_expired(entry[0]))
        return merge(changed, unchanged, key=order)

    def _keys(self, *, by_time: bool) -> list[bytes]:
        found = self._sorted.get(by_time)
        if found is None:
            found = self._sorted[by_time] = sorted(self._changed, key=_by_time if by_time else None)
        return found

    def _is_expired(self, key: bytes) -> bool:
        return self._expired_ms is not None and _time(key) < self._expired_ms


def _time(key: bytes) -> int:
    return int.from_bytes(key[-_TIME_BYTES:], "big")


def _by_time(key: bytes) -> bytes:
    return key[-_TIME_BYTES:] + key
