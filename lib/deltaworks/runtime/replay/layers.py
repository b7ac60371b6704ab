"""Global tables as of each step: one copy per machine as of the first step of a chunk, with later changes in memory.

The task chunks of a chunk begin at the same step, so they share that copy (`GlobalTables`). Each continues on its own
over a layer that holds the changes since then and is dropped at the end of the chunk. Records of global topics count
as records of the chunk, which bounds the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import StateError
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.stores.build import Store
from deltaworks.runtime.global_tables import GlobalTable, GlobalTables, Kept, Reader
from deltaworks.runtime.state.local_store import Changes, StateVersion
from deltaworks.runtime.state.overlay import OverlayReader


class Layers:
    """The global tables of one task chunk, from the position of `below` onwards."""

    def __init__(self, below: GlobalTables, pipeline: Pipeline, connect: Callable[[], Reader]) -> None:
        """
        Args:
            below: the tables as of the first step; nobody moves them meanwhile.
            pipeline: decides what happens to records that fail.
            connect: makes the reader when there is something to read.
        """
        self._connect = connect
        self._reader: Reader | None = None
        self._tables = [
            GlobalTable(table.stage, pipeline, _Layer(table.local), lambda: _Lent(self._connected()))
            for table in below.tables
        ]

    def at(self, position: bytes) -> bool:
        """See `GlobalTables.at`; positions only grow."""
        wanted = msgspec.msgpack.decode(position, type=Offsets)
        changed = [table.at(wanted) for table in self._tables]
        return any(changed)

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by name."""
        return {name: store for table in self._tables for name, store in table.stores.items()}

    def close(self) -> None:
        """Closes the connection."""
        if self._reader is not None:
            self._reader.close()

    def _connected(self) -> Reader:
        if self._reader is None:
            self._reader = self._connect()
        return self._reader


class _Lent:
    """A reader that its owner closes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        return self._reader.read(ranges)

    def beginning(self, topic: str, partition: int) -> int:
        return self._reader.beginning(topic, partition)

    def close(self) -> None: ...


class _Layer:
    """`Kept` in memory, over entries that do not change."""

    def __init__(self, below: Kept) -> None:
        self._below, self._version = below, below.version()
        self._readers: dict[str, OverlayReader] = {}

    def version(self) -> StateVersion:
        return self._version

    def reader(self, store: str) -> OverlayReader:
        if store not in self._readers:
            self._readers[store] = OverlayReader(self._below.reader(store))
        return self._readers[store]

    def commit(self, changes: Changes, version: StateVersion, previous: StateVersion | None) -> None:
        for name, change in changes.items():
            self.reader(name).apply(change)
        self._version = version

    def rebuild(self, history: Iterator[Changes], version: StateVersion, previous: StateVersion | None) -> None:
        raise AssertionError("the steps of a task chunk go back")

    def refresh(self) -> bool:
        return False

    def discard(self) -> None:
        raise StateError("the store of a global table below this task chunk cannot be read")

    def close(self) -> None: ...
