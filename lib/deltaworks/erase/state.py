"""Deletes a person's data from the state of a stopped stream: Spark's state, changelogs, initial state, local stores.

The state of every task is brought into a store beside the live one, without what is theirs (`entries`), and becomes
the initial state of a new checkpoint (`checkpoint`). All else of the state stays byte for byte; the stream goes on
with the next batch, and the person's key begins as a new one.

Global tables are not among it: their stores hold what their topics hold, and are read again at the next start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.erase import checkpoint, entries
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import next_version
from deltaworks.settings import Settings
from deltaworks.spark import handover, stored_state
from deltaworks.spark.stopped import ReadState, StoppedStores, StoppedStream
from deltaworks.topology.persons import Person
from deltaworks.topology.plan import Plan


class StateErased(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted, or would be."""

    entries: dict[str, int]
    """Store -> the number of its entries that went, or lost a part; stores without any are left out."""


def erase(
    settings: Settings,
    pipeline: Pipeline,
    paths: PipelinePaths,
    person: Person,
    erasure_id: str,
    *,
    read: ReadState = stored_state.read,
    admitted: Callable[[], None] = lambda: None,
) -> StateErased:
    """Deletes what is a person's; called again with the same id, it completes it, or finds it done.

    Until the stream switches, its checkpoint stays as it is. For the holder of the lease, while no driver runs.

    Args:
        settings: home, cores, memory.
        pipeline: with the code that the checkpoint was made for.
        paths: paths of the pipeline.
        person: whose data it is.
        erasure_id: letters, digits, `.`, `_` and `-`.
        read: reads the state.
        admitted: raises an error if a driver has been admitted since; called before the stream switches.

    Raises:
        IncompatibleCheckpointError: the code has another topology, or the checkpoint is damaged.
        ConflictError: a batch or a hand-over was begun and not finished.
        TableError: a hand-over was interrupted.
        QueryError: Spark cannot read its state.
    """
    made = checkpoint.read(paths, erasure_id)
    if made is None:
        handover.settle(paths)
        stream = StoppedStream.of(settings, pipeline.plan(), paths, read)
        if stream is None:
            return StateErased(entries={})
        stream.require_settled()
        last = stream.last_batch()
        with stream.stores() as stores:
            found = _Without(stream.plan, stores, person)
            checkpoint.make(
                stream, erasure_id=erasure_id, last_batch=last, open_store=found.opened, entries=found.counts
            )
            admitted()
            checkpoint.switch(paths, erasure_id)
        made = checkpoint.read(paths, erasure_id)
        assert made is not None
    return StateErased(entries=checkpoint.complete(paths, erasure_id, made).entries)


def is_begun(paths: PipelinePaths, erasure_id: str) -> bool:
    """Whether an erasure has changed the state."""
    return checkpoint.read(paths, erasure_id) is not None


def count(
    settings: Settings,
    pipeline: Pipeline,
    paths: PipelinePaths,
    person: Person,
    *,
    read: ReadState = stored_state.read,
) -> StateErased:
    """Counts what `erase` would delete, as of the last committed batch; changes nothing.

    For the holder of the lease, while no driver runs; see `erase` for arguments and errors.
    """
    stream = StoppedStream.of(settings, pipeline.plan(), paths, read)
    if stream is None:
        return StateErased(entries={})
    with stream.stores() as opened:
        found = _Without(stream.plan, opened, person)
        for stage in stream.plan.stages:
            stores = stores_of(stage)
            for task in range(stream.before.tasks[stage.index]):
                with found.opened(stage.index, task, stores):
                    pass
    return StateErased(entries=found.counts)


@dataclass
class _Without:
    """The stores of all tasks without the person."""

    plan: Plan
    stores: StoppedStores
    person: Person
    counts: dict[str, int] = field(default_factory=Counter)
    """Grows with each store that is opened."""

    @contextmanager
    def opened(self, stage: int, task: int, stores: dict[str, bool]) -> Iterator[LocalStore | None]:
        """Opens the stores of a task; see `handover.OpenStore`."""
        with self.stores.opened(stage, task, stores) as found:
            if found is None:
                yield None
                return
            local, header = found
            changed = self._changes(stage, local)
            with local.transaction() as transaction:
                transaction.apply(changed)
                transaction.commit(next_version(header))
            yield local

    def _changes(self, stage: int, local: LocalStore) -> dict[str, StoreChanges]:
        changed: dict[str, StoreChanges] = {}
        of = self.plan.stages[stage]
        for spec in of.stores:
            found = list(entries.changes(of, spec, local.reader(spec.name).scan(b"", None), self.person))
            if found:
                changed[spec.name] = StoreChanges(found)
                self.counts[spec.name] = self.counts.get(spec.name, 0) + len(found)
        return changed
