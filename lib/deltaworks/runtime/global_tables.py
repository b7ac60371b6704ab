"""The stores of global tables: whole on every machine, filled from their topics, read as of the start of a batch.

The topics themselves are the changelog, so Spark's state holds nothing of global tables. Each batch says how far the
topics have been read. The first worker of a machine reads on up to there; the others find it done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import StateError
from deltaworks.files import alone
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.records import DeadLetter, Headers, RecordBatch, Rows
from deltaworks.kernel.stores.build import Store
from deltaworks.kernel.stores.state import StateReader
from deltaworks.kernel.task import Task
from deltaworks.runtime.state.local_store import Changes, LocalStore, StateVersion, stores_of
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import Stage

_COMMIT_RECORDS = 100_000
_log = logging.getLogger(__name__)


class Reader(Protocol):
    """Reads records from Kafka."""

    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        """The records of the ranges, in portions."""

    def beginning(self, topic: str, partition: int) -> int:
        """The first offset that is there."""

    def close(self) -> None:
        """Closes the connection."""


class GlobalTables:
    """The global tables of one pipeline, in one process of a machine."""

    def __init__(
        self, plan: Plan, pipeline: Pipeline, root: Path, connect: Callable[[], Reader], *, generation: int = 0
    ) -> None:
        """
        Args:
            plan: has global stages.
            pipeline: decides what happens to records that fail.
            root: folder of the pipeline's local stores.
            connect: makes the reader when there is something to read.
            generation: processes of one wait for each other; an older one's may be suspended.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(root, generation)
        with alone(self._lock):
            self.tables = [
                GlobalTable(stage, pipeline, LocalStore.copy(global_path(root, stage.index), stores_of(stage)), connect)
                for stage in plan.global_stages
            ]

    def at(self, position: bytes) -> bool:
        """Brings every store to a position.

        Args:
            position: msgpack `Offsets`, the next offset of every partition.

        Returns:
            Whether `stores` has changed objects: readers must fetch them again.

        Raises:
            StreamsError: a record failed, and the pipeline's error policy is to fail.
            KafkaReadError: the broker did not answer.
            StateError: a store cannot be read or written, even after it was recreated.
        """
        wanted = msgspec.msgpack.decode(position, type=Offsets)
        with alone(self._lock):
            changed = [table.at(wanted) for table in self.tables]
        return any(changed)

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by name."""
        return {name: store for table in self.tables for name, store in table.stores.items()}

    @property
    def readers(self) -> Mapping[str, StateReader]:
        """Readers of the committed entries, by name of the store."""
        return {name: reader for table in self.tables for name, reader in table.readers.items()}

    def close(self) -> None:
        """Closes the local stores."""
        for table in self.tables:
            table.close()


def _lock(root: Path, generation: int) -> Path:
    """The file whose lock the processes of a generation pass on; those of older generations go."""
    for file in root.glob("global-*.lock"):
        if int(file.stem.removeprefix("global-")) < generation:
            file.unlink(missing_ok=True)
    return root / f"global-{generation}.lock"


def global_path(root: Path, stage: int) -> Path:
    """The folder of a global stage's local store."""
    return root / f"global-{stage}"


class Kept(Protocol):
    """What keeps the entries of a global table; see `LocalStore`."""

    def version(self) -> StateVersion: ...

    def reader(self, store: str) -> StateReader: ...

    def commit(self, changes: Changes, version: StateVersion, previous: StateVersion | None) -> None: ...

    def rebuild(self, history: Iterator[Changes], version: StateVersion, previous: StateVersion | None) -> None: ...

    def refresh(self) -> bool: ...

    def discard(self) -> None: ...

    def close(self) -> None: ...


class GlobalTable:
    """One global stage."""

    def __init__(self, stage: Stage, pipeline: Pipeline, local: Kept, connect: Callable[[], Reader]) -> None:
        self.stage, self.local = stage, local
        self._errors, self._connect = pipeline.errors, connect
        self._task: Task | None = None
        self._version: StateVersion | None = None
        """The version of the state that the task's caches are valid for."""

    @property
    def stores(self) -> Mapping[str, Store]:
        assert self._task is not None
        return self._task.stores

    @property
    def readers(self) -> Mapping[str, StateReader]:
        return {store.name: self.local.reader(store.name) for store in self.stage.stores}

    def at(self, wanted: Offsets) -> bool:
        """Whether the stores were replaced; a store that cannot be trusted is filled again from its topics."""
        wanted = {topic: wanted[topic] for topic in self.stage.topics}
        try:
            if self.local.refresh():
                self._task = None
            return self._brought_to(wanted)
        except StateError as error:
            _log.warning("%s It is thrown away and filled again.", error.message)
            self.local.discard()
            self._task = None
        return self._brought_to(wanted)

    def _brought_to(self, wanted: Offsets) -> bool:
        version = self.local.version()
        found = msgspec.msgpack.decode(version.nonce, type=Offsets) if version.nonce else {}
        if any(stop < found.get(topic, {}).get(p, 0) for topic, parts in wanted.items() for p, stop in parts.items()):
            # An older batch runs again: it must not see what came later.
            before, version, found = version, StateVersion(version.number + 1, b""), {}
            self.local.rebuild(iter(()), version, before)
        new = self._task is None or self._version != version
        if new:
            self._task = self._new_task()
        self._version = version
        if found != wanted:
            self._read(found, wanted)
        return new

    def _read(self, found: Offsets, wanted: Offsets) -> None:
        task = self._task
        assert task is not None
        self._task = None  # not trusted again unless this ends well
        position = {topic: dict(found.get(topic, {})) for topic in wanted}
        reader, uncommitted = self._connect(), 0
        try:
            for topic, parts in sorted(wanted.items()):
                for p, stop in sorted(parts.items()):
                    start = position[topic].get(p)
                    first = reader.beginning(topic, int(p)) if start is None else start
                    for portion in reader.read([Range(topic, int(p), first, stop)]) if first < stop else ():
                        task.process(portion, 0)
                        position[topic][p] = portion[-1].offsets[-1] + 1
                        uncommitted += sum(len(batch.offsets) for batch in portion)
                        if uncommitted >= _COMMIT_RECORDS:
                            self._commit(task, position)
                            uncommitted = 0
                    position[topic][p] = stop
        finally:
            reader.close()
        self._commit(task, position)
        self._task = task

    def _commit(self, task: Task, position: Offsets) -> None:
        before = self._version
        assert before is not None
        self._version = StateVersion(before.number + 1, msgspec.msgpack.encode(position))
        self.local.commit(task.commit(), self._version, before)

    def _new_task(self) -> Task:
        return Task(self.stage, 0, state=self.local, collector=_Nowhere(), errors=self._errors, exchange_partitions={})

    def close(self) -> None:
        self.local.close()


class _Nowhere:
    """`Collector` of a global stage, which sends nothing. If the pipeline says continue, bad records are skipped, as in
    Kafka Streams: every machine reads them, so each would write a dead letter, again after each restart."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None: ...

    def exchange(
        self, exchange: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers
    ) -> None: ...

    def rows(self, sink: str) -> Rows:
        raise AssertionError(f"a global stage has no sink {sink!r}")

    def dead_letter(self, letter: DeadLetter) -> None: ...
