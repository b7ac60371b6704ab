"""A stream whose stores are read: which checkpoint runs, which batch is committed, and one answer as of it.

An answer first looks which batch is the last committed one, then opens the stores of the tasks that it needs, each as
of that batch (`runtime.state.task_reader`). If one of them has gone on, it begins anew with the next batch; if that
does not help for `patience`, it says so. So it is of one batch, whatever the number of tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from operator import itemgetter
from typing import Self, TypeVar

import msgspec

from deltaworks import clock
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError, NoSuchStoreError, StoreUnavailableError
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.migration import StoredSchemas
from deltaworks.kernel.stores.build import Store, build_store
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import ReversibleReader
from deltaworks.kernel.stores.versioned import LATEST_MS
from deltaworks.kernel.task_times import TASK_STORE, TaskTimes
from deltaworks.queries.answers import AsOf
from deltaworks.queries.places import WHOLE, Places
from deltaworks.queries.remote import RemoteReader
from deltaworks.queries.sources import Moment, Reader, Source, State, source_of
from deltaworks.runtime.state.task_reader import IntentOf, unavailable
from deltaworks.settings import Settings
from deltaworks.topology import fingerprint
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import Stage, StoreSpec

T = TypeVar("T")
PATIENCE = timedelta(seconds=2)
"""How long an answer is tried, and a batch waited for."""
_POLL_S = 0.002


@dataclass(frozen=True)
class Owned:
    """A store with the stage that it belongs to."""

    spec: StoreSpec
    stage: Stage
    is_global: bool


class Part:
    """A store of one task, as of the batch of an answer; valid within `OpenStream.ask`."""

    def __init__(self, spec: StoreSpec, state: State, task: int | None) -> None:
        self.task, self.state = task, state
        self.number = task or 0
        """In the order of rows that have the same key."""
        # Refuses what cannot be read. Values that wait for `migrate` are converted by the stream.
        StoredSchemas([replace(spec, migrate=None)], state.backend)
        self._spec = spec
        reader = state.backend.reader(spec.name)
        assert isinstance(reader, ReversibleReader)
        self.reader = reader
        self._newest_ms = TaskTimes(state.backend.reader(TASK_STORE)).get(f"newest/{spec.name}")

    @property
    def newest_ms(self) -> int:
        """The newest time ever put into a timed store."""
        return self._newest_ms

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What is at keys."""
        reader = self.reader
        return reader.get_many(keys) if isinstance(reader, RemoteReader) else [reader.get(key) for key in keys]

    def size(self) -> tuple[int, int, int | None]:
        """Entries, bytes on the disk, and the time of the oldest entry of a timed store."""
        oldest = next(self.reader.scan_time(0, LATEST_MS), None) if self._spec.timed else None
        return *self.state.size(self._spec.name), None if oldest is None else int.from_bytes(oldest[0][-TIME_BYTES:])

    def changes(self, batch: int, intent_of: IntentOf) -> Sequence[tuple[bytes, bytes | None]] | None:
        """See `TaskState.changes`."""
        return self.state.changes(self._spec.name, batch, intent_of)

    def store(self) -> Store:
        """The store as processors read it; it holds what was read, so take another one for the next answer."""
        return build_store(self._spec, self.reader, newest_ms=self._newest_ms, max_cached=0)


class Look:
    """One attempt at an answer, as of one batch."""

    def __init__(self, as_of: AsOf, places: Places, part: Callable[[int], Part], intent_of: IntentOf) -> None:
        self.as_of, self._places, self._part, self._intent_of = as_of, places, part, intent_of

    def parts(self) -> Iterator[Part]:
        """The parts of all tasks; each is opened when it is taken."""
        return map(self._part, range(self._places.tasks))

    def parts_with(self, key: bytes) -> Iterator[Part]:
        """Those that may have a key, the likely one first."""
        return map(self._part, self._places.asked(key))

    def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What is at keys, in their order; each task is asked once, as long as the likely one has what it should."""
        found: list[bytes | None] = [None] * len(keys)
        asked = [self._places.asked(key) for key in keys]
        waiting, turn = list(range(len(keys))), 0
        while waiting:
            of_task: dict[int, list[int]] = {}
            for number in waiting:
                of_task.setdefault(asked[number][turn], []).append(number)
            for task, numbers in of_task.items():
                for number, value in zip(numbers, self._part(task).values([keys[n] for n in numbers]), strict=True):
                    found[number] = value
            turn += 1
            waiting = [number for number in waiting if found[number] is None and len(asked[number]) > turn]
        return found

    def changes(self) -> list[tuple[bytes, bytes | None]] | None:
        """What the batch has changed in all tasks, in the order of keys; None: it is not known any more."""
        found: list[tuple[bytes, bytes | None]] = []
        for part in self.parts():
            changed = part.changes(self.as_of.batch, self._intent_of)
            if changed is None:
                return None
            found += changed
        return sorted(found, key=itemgetter(0))


class OpenStream:
    """The stores of a stream on this machine, whether it runs or has ended. For any number of threads, one at a time.

    LMDB admits one of these per stream and process: share it. A process that was forked needs its own.

    Args:
        pipeline: the pipeline, with the code that the stream runs.
        settings: where it is.
        patience: how long an answer is tried while the stream goes on or fills a store again, and a batch waited for.
    """

    def __init__(self, pipeline: Pipeline, settings: Settings, *, patience: timedelta = PATIENCE) -> None:
        """
        Raises:
            ConfigurationError: the stream's stores are not on this machine, or it has never run.
            IncompatibleCheckpointError: the stream runs other code, whose stores are read otherwise.
        """
        self.pipeline, self.plan = pipeline, pipeline.plan()
        self._paths = PipelinePaths.of(settings, pipeline.name)
        self._patience_s = patience.total_seconds()
        self._lock = threading.Lock()
        self._is_closed = False
        self._checkpoint: _Checkpoint | None = None
        with self._lock:
            self._current()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the stores."""
        with self._lock:
            if self._checkpoint is not None:
                self._checkpoint.close()
            self._checkpoint, self._is_closed = None, True

    @cached_property
    def owned(self) -> Mapping[str, Owned]:
        """All stores by name, also those that only their operators read."""
        found = {spec.name: Owned(spec, stage, False) for stage in self.plan.stages for spec in stage.stores}
        return found | {
            spec.name: Owned(spec, stage, True) for stage in self.plan.global_stages for spec in stage.stores
        }

    def owner(self, name: str) -> Owned:
        """
        Raises:
            NoSuchStoreError: there is no such store.
        """
        found = self.owned.get(name)
        if found is None:
            raise NoSuchStoreError(
                f"{self.pipeline.name!r} has no store {name!r}.",
                hint=f"its stores: {', '.join(sorted(self.owned)) or 'it has none'}",
            )
        return found

    def places(self, name: str) -> Places:
        """The tasks of a store."""
        owned = self.owner(name)
        if owned.is_global:
            return Places(1, 1, certain=True)
        with self._lock:
            checkpoint = self._current().plan
        return Places.of(self.plan, owned.stage, owned.spec, checkpoint.tasks[owned.stage.index], checkpoint.partitions)

    def ask(self, name: str, answer: Callable[[Look], T], min_batch: int | None = None) -> T:
        """Answers a question about a store.

        Args:
            name: of the store.
            answer: reads what it needs and returns nothing that reads later; may be called several times.
            min_batch: the first batch that counts: the answer waits until it is committed.

        Raises:
            StoreUnavailableError: there was no answer for as long as the patience lasts.
            NoSuchStoreError: there is no such store.
        """
        owned = self.owner(name)
        deadline_s: float | None = None
        while True:
            try:
                with self._lock:
                    checkpoint = self._current()
                    if not checkpoint.source.is_elsewhere:
                        return checkpoint.answer(owned, min_batch, answer)
                return checkpoint.answer(owned, min_batch, answer)
            except StoreUnavailableError:
                now_s = clock.ticks_s()
                deadline_s = now_s + self._patience_s if deadline_s is None else deadline_s
                if now_s >= deadline_s:
                    raise
            time.sleep(_POLL_S)

    def last_batch(self) -> int | None:
        """The last batch that is committed; None: there is none."""
        with self._lock:
            return self._current().source.moment().last()

    @property
    def is_elsewhere(self) -> bool:
        """Whether an answer may wait for other machines: its stores are beside executors, or nobody knows where."""
        checkpoint = self._checkpoint
        return checkpoint is None or checkpoint.source.is_elsewhere

    def _current(self) -> _Checkpoint:
        if self._is_closed:
            raise ConfigurationError(f"The stores of {self.pipeline.name!r} were closed.", hint="queries.open(...)")
        known = self._checkpoint
        if known is None or not known.source.is_current():
            if known is not None:
                known.close()
            self._checkpoint = None
            source = source_of(self.pipeline.name, self._paths)
            known = self._checkpoint = _Checkpoint(self.pipeline.name, self.plan, source)
        return known


class _Checkpoint:
    """The stores of one checkpoint."""

    def __init__(self, name: str, plan: Plan, source: Source) -> None:
        different = fingerprint.differences(source.plan.fingerprint, plan.fingerprint())
        if different:
            source.close()
            raise IncompatibleCheckpointError(
                "\n  ".join([f"The stores of {name!r} were written by another plan than this code has:",
                             *map(str, different)]),
                hint="ask with the code that the stream runs",
            )  # fmt: skip
        self.source, self.plan, self._topology = source, source.plan, plan
        self._places: dict[str, Places] = {}
        self._parts: dict[tuple[str, int | None], tuple[object, Part]] = {}

    def close(self) -> None:
        self.source.close()

    def places(self, owned: Owned) -> Places:
        """The tasks of a store."""
        if owned.is_global:
            return WHOLE
        found = self._places.get(owned.spec.name)
        if found is None:
            tasks = self.plan.tasks[owned.stage.index]
            found = Places.of(self._topology, owned.stage, owned.spec, tasks, self.plan.partitions)
            self._places[owned.spec.name] = found
        return found

    def answer(self, owned: Owned, min_batch: int | None, answer: Callable[[Look], T]) -> T:
        moment = self.source.moment()
        batch = moment.last()
        if batch is None:
            raise unavailable("no batch of the stream's checkpoint is committed yet")
        if min_batch is not None and batch < min_batch:
            raise unavailable(f"batch {min_batch} is not committed yet; the last one is {batch}")
        begun: list[Reader] = []
        try:
            look = self._look_at_global if owned.is_global else self._look
            return answer(look(owned, moment, batch, begun))
        finally:
            for reader in begun:
                reader.end()

    def _look(self, owned: Owned, moment: Moment, batch: int, begun: list[Reader]) -> Look:
        opened: dict[int, Part] = {}

        def part(task: int) -> Part:
            found = opened.get(task)
            if found is None:
                reader = moment.reader(owned.stage, task)
                begun.append(reader)
                state = reader.begin(batch, moment.digest)
                found = opened[task] = self._part(owned.spec, state, task)
            return found

        return Look(moment.as_of(batch), self.places(owned), part, moment.digest)

    def _look_at_global(self, owned: Owned, moment: Moment, batch: int, begun: list[Reader]) -> Look:
        """A global table has the state of its own offsets, whatever batch is in process."""
        reader = moment.reader(owned.stage, None)
        begun.append(reader)
        state = reader.begin_newest()
        part = self._part(owned.spec, state, None)
        offsets = msgspec.msgpack.decode(state.version.nonce, type=Offsets)
        as_of = msgspec.structs.replace(moment.as_of(batch), offsets=offsets)
        return Look(as_of, self.places(owned), lambda _: part, moment.digest)

    def _part(self, spec: StoreSpec, state: State, task: int | None) -> Part:
        known = self._parts.get((spec.name, task))
        if known is None or known[0] != state.identity:
            known = self._parts[spec.name, task] = state.identity, Part(spec, state, task)
        return known[1]
