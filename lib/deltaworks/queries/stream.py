"""A stream whose stores are read: which checkpoint runs, which batch is committed, and one answer as of it.

An answer first looks which batch is the last committed one, then opens the stores of the tasks that it needs, each as
of that batch (`runtime.state.task_reader`). If one of them has gone on, it begins anew with the next batch; if that
does not help for `patience`, it says so. So it is of one batch, whatever the number of tasks.
"""

from __future__ import annotations

import os
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
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.intents import Intent, Intents
from deltaworks.control.paths import CheckpointPaths, PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError, NoSuchStoreError, StoreUnavailableError
from deltaworks.files import files_in
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.migration import StoredSchemas
from deltaworks.kernel.stores.build import Store, build_store
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import ReversibleReader
from deltaworks.kernel.stores.versioned import LATEST_MS
from deltaworks.kernel.task_times import TASK_STORE, TaskTimes
from deltaworks.object_path import ObjectPath
from deltaworks.queries.answers import AsOf
from deltaworks.queries.commits import Commits
from deltaworks.queries.places import WHOLE, Places
from deltaworks.runtime.global_tables import global_path
from deltaworks.runtime.state.local_store import stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.runtime.state.task_reader import IntentOf, TaskReader, TaskState, unavailable
from deltaworks.settings import Settings
from deltaworks.topology import fingerprint
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import Stage, StoreSpec

T = TypeVar("T")
PATIENCE = timedelta(seconds=2)
"""How long an answer is tried, and a batch waited for."""
_POLL_S = 0.002
_BATCHES = 64
"""Number of batches that are remembered."""


@dataclass(frozen=True)
class Owned:
    """A store with the stage that it belongs to."""

    spec: StoreSpec
    stage: Stage
    is_global: bool


class Part:
    """A store of one task, as of the batch of an answer; valid within `OpenStream.ask`."""

    def __init__(self, spec: StoreSpec, state: TaskState, task: int | None) -> None:
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
        if isinstance(self._paths.lasting, ObjectPath):
            raise ConfigurationError(
                f"The state of {pipeline.name!r} is in an object store, and its stores are where its tasks run: they "
                "cannot be read here.",
                hint="queries need a stream with its home on this machine; read its tables instead",
            )
        self._pointer = str(self._paths.pointer)
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
                    return self._current().answer(owned, min_batch, answer)
            except StoreUnavailableError:
                now_s = clock.ticks_s()
                deadline_s = now_s + self._patience_s if deadline_s is None else deadline_s
                if now_s >= deadline_s:
                    raise
            time.sleep(_POLL_S)

    def last_batch(self) -> int | None:
        """The last batch that is committed; None: there is none."""
        with self._lock:
            return self._current().last()

    def _current(self) -> _Checkpoint:
        """The checkpoint that runs: a handover or a rescale switches to another one, and a start may renew its plan."""
        if self._is_closed:
            raise ConfigurationError(f"The stores of {self.pipeline.name!r} were closed.", hint="queries.open(...)")
        known = self._checkpoint
        if known is None or known.stamp != (_stamp(self._pointer), _stamp(known.path)):
            if known is not None:
                known.close()
            self._checkpoint = None
            pointer, current = _stamp(self._pointer), self._paths.current
            known = _Checkpoint(self.pipeline.name, self.plan, current, (pointer, _stamp(str(current.plan))))
            self._checkpoint = known
        return known


_Stamp = tuple[int, int] | None


def _stamp(file: str) -> _Stamp:
    """Changes whenever a file is replaced; None: there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 (it is called for every answer)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


class _Checkpoint:
    """The stores of one checkpoint, with the batches that are committed in it."""

    def __init__(self, name: str, plan: Plan, paths: CheckpointPaths, stamp: tuple[_Stamp, _Stamp]) -> None:
        self.path, self.stamp = str(paths.plan), stamp
        stored = stored_plan(paths.plan)
        if stored is None:
            raise ConfigurationError(
                f"{name!r} has never run in this home: there is no {paths.plan}.", hint=f"deltaworks deploy {name}"
            )
        different = fingerprint.differences(stored.fingerprint, plan.fingerprint())
        if different:
            raise IncompatibleCheckpointError(
                "\n  ".join([f"The stores of {name!r} were written by another plan than this code has:",
                             *map(str, different)]),
                hint="ask with the code that the stream runs",
            )  # fmt: skip
        self.plan: CheckpointPlan = stored
        self._topology = plan
        self._places: dict[str, Places] = {}
        self._local = paths.local
        self._intents = Intents(files_in(paths.intents))
        self._commits = Commits(paths.spark / "commits")
        self._batches: dict[int, _Batch] = {}
        self._readers: dict[tuple[int, int | None], TaskReader] = {}
        """By stage and task; None: a global stage."""
        self._parts: dict[tuple[str, int | None], tuple[object, Part]] = {}

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def last(self) -> int | None:
        last = self._commits.last()
        return None if last is None else last + self.plan.first_batch

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
        batch = self.last()
        if batch is None:
            raise unavailable("no batch of the stream's checkpoint is committed yet")
        if min_batch is not None and batch < min_batch:
            raise unavailable(f"batch {min_batch} is not committed yet; the last one is {batch}")
        begun: list[TaskReader] = []
        try:
            look = self._look_at_global if owned.is_global else self._look
            return answer(look(owned, batch, begun))
        finally:
            for reader in begun:
                reader.end()

    def _look(self, owned: Owned, batch: int, begun: list[TaskReader]) -> Look:
        opened: dict[int, Part] = {}

        def part(task: int) -> Part:
            found = opened.get(task)
            if found is None:
                reader = self._reader(owned, task)
                begun.append(reader)
                state = reader.begin(batch, self._digest)
                found = opened[task] = self._part(owned.spec, state, task)
            return found

        return Look(self._known_batch(batch).as_of, self.places(owned), part, self._digest)

    def _look_at_global(self, owned: Owned, batch: int, begun: list[TaskReader]) -> Look:
        """A global table has the state of its own offsets, whatever batch is in process."""
        reader = self._reader(owned, None)
        begun.append(reader)
        state = reader.begin_newest()
        part = self._part(owned.spec, state, None)
        offsets = msgspec.msgpack.decode(state.version.nonce, type=Offsets)
        as_of = msgspec.structs.replace(self._known_batch(batch).as_of, offsets=offsets)
        return Look(as_of, self.places(owned), lambda _: part, self._digest)

    def _reader(self, owned: Owned, task: int | None) -> TaskReader:
        at = (owned.stage.index, task)
        found = self._readers.get(at)
        if found is None:
            stage = owned.stage
            folder = global_path(self._local, stage) if task is None else local_path(self._local, stage.index, task)
            found = self._readers[at] = TaskReader(folder, stores_of(stage))
        return found

    def _part(self, spec: StoreSpec, state: TaskState, task: int | None) -> Part:
        known = self._parts.get((spec.name, task))
        if known is None or known[0] != state.identity:
            known = self._parts[spec.name, task] = state.identity, Part(spec, state, task)
        return known[1]

    def _known_batch(self, batch: int) -> _Batch:
        found = self._batch(batch)
        if found is None:
            raise unavailable(f"the intent of batch {batch} is gone")
        return found

    def _digest(self, batch: int) -> str | None:
        found = self._batch(batch)
        return None if found is None else found.intent

    def _batch(self, batch: int) -> _Batch | None:
        """A committed batch, whose intent nobody replaces any more."""
        found = self._batches.get(batch)
        if found is None and (intent := self._intents.get(batch)) is not None:
            while len(self._batches) >= _BATCHES:
                del self._batches[next(iter(self._batches))]
            found = self._batches[batch] = _Batch.of(intent)
        return found


@dataclass(frozen=True)
class _Batch:
    """What is remembered of a batch."""

    intent: str
    """The digest."""
    as_of: AsOf

    @classmethod
    def of(cls, intent: Intent) -> _Batch:
        offsets = {topic: parts for topic, parts in intent.end.items() if not topic.startswith("!")}
        return cls(intent.digest, AsOf(batch=intent.batch, time_ms=intent.clock_ms, offsets=offsets))
