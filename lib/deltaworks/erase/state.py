"""Deletes a person's data from the state of a stopped stream: Spark's state, changelogs, initial state, local stores.

The state of every task is brought into a store beside the live one, without what is theirs (`entries`), and becomes
the initial state of a new checkpoint (`checkpoint`). All else of the state stays byte for byte; the stream goes on
with the next batch, and the person's key begins as a new one.

Global tables are not among it: their stores hold what their topics hold, and are read again at the next start.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from deltaworks.control import batches
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.intents import Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.erase import checkpoint, entries
from deltaworks.errors import ConflictError, IncompatibleCheckpointError
from deltaworks.files import LocalFiles
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.lakehouse.publish import ownership
from deltaworks.runtime.state.initial_state import InitialState, path_of
from deltaworks.runtime.state.local_store import LocalStore, discard, stores_of
from deltaworks.runtime.state.recovery import CommittedState, local_path, next_version, open_store
from deltaworks.runtime.task_loop import TaskId
from deltaworks.settings import Settings
from deltaworks.spark import beginning, handover, stored_state
from deltaworks.spark.checkpoint import begun_batch, committed_offsets
from deltaworks.spark.stored_state import StoredTask
from deltaworks.topology import fingerprint
from deltaworks.topology.persons import Person
from deltaworks.topology.plan import Plan

ReadState: TypeAlias = Callable[[Settings, str, Path, Path, Path], None]
"""As `stored_state.read`."""
_AGAIN = "start the stream once more, and stop it when it has caught up"


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

    Raises:
        IncompatibleCheckpointError: the code has another topology, or the checkpoint is damaged.
        ConflictError: a batch or a hand-over was begun and not finished.
        TableError: a hand-over was interrupted.
        QueryError: Spark cannot read its state.
    """
    made = checkpoint.read(paths, erasure_id)
    if made is None:
        handover.settle(paths)
        _require_handed_over(paths)
        before = _fitting(pipeline.plan(), paths)
        if before is None:
            return StateErased(entries={})
        last = _last_batch(paths, before)
        shutil.rmtree(paths.scratch, ignore_errors=True)
        found = _Stores(settings, pipeline.plan(), paths, before, person, read)
        checkpoint.make(
            paths, found.plan, before,
            erasure_id=erasure_id, last_batch=last, open_store=found.without, entries=found.counts,
        )  # fmt: skip
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
    before = _fitting(pipeline.plan(), paths)
    if before is None:
        return StateErased(entries={})
    found = _Stores(settings, pipeline.plan(), paths, before, person, read)
    try:
        for stage in found.plan.stages:
            stores = stores_of(stage)
            for task in range(before.tasks[stage.index]):
                with found.without(stage.index, task, stores):
                    pass
    finally:
        shutil.rmtree(paths.scratch, ignore_errors=True)
    return StateErased(entries=found.counts)


@dataclass
class _Stores:
    """The stores of all tasks without the person, in the pipeline's folder for temporary files."""

    settings: Settings
    plan: Plan
    paths: PipelinePaths
    before: CheckpointPlan
    person: Person
    read: ReadState
    counts: dict[str, int] = field(default_factory=Counter)
    """Grows with each store that is opened."""

    def __post_init__(self) -> None:
        self._segments = self.paths.scratch / "segments"
        shutil.rmtree(self._segments, ignore_errors=True)
        current = self.paths.current
        if committed_offsets(current.spark) is not None:
            self.read(self.settings, self.plan.name, current.spark, self._segments, self.paths.scratch / "spark")
        initial = self.before.initial_state
        self._initial = None if initial is None else current.root / initial

    @contextmanager
    def without(self, stage: int, task: int, stores: dict[str, bool]) -> Iterator[LocalStore | None]:
        """Opens the stores of a task; see `handover.OpenStore`."""
        state = self._state_of((stage, task))
        if state is None:
            yield None
            return
        path = local_path(self.paths.scratch / "stores", stage, task)
        discard(path)
        with closing(LocalStore(path, stores)) as local:
            header, _ = open_store(local, state)
            changed = self._changes(stage, local)
            with local.transaction() as transaction:
                transaction.apply(changed)
                transaction.commit(next_version(header))
            yield local
        discard(path)

    def _state_of(self, task: TaskId) -> CommittedState | None:
        """What the checkpoint says of a task; None: it has not run."""
        stored = StoredTask(self._segments, task)
        if stored.header() is not None:
            return stored
        return None if self._initial is None else InitialState(path_of(self._initial, *task))

    def _changes(self, stage: int, local: LocalStore) -> dict[str, StoreChanges]:
        changed: dict[str, StoreChanges] = {}
        of = self.plan.stages[stage]
        for spec in of.stores:
            found = list(entries.changes(of, spec, local.reader(spec.name).scan(b"", None), self.person))
            if found:
                changed[spec.name] = StoreChanges(found)
                self.counts[spec.name] = self.counts.get(spec.name, 0) + len(found)
        return changed


def _fitting(plan: Plan, paths: PipelinePaths) -> CheckpointPlan | None:
    """The plan of the checkpoint that runs; None: the pipeline has never run."""
    before = stored_plan(paths.current.plan)
    if before is None:
        return None
    if changed := fingerprint.differences(before.fingerprint, plan.fingerprint()):
        raise IncompatibleCheckpointError(
            "\n  ".join(
                [f"the checkpoint of pipeline {plan.name!r} was made for another topology:", *map(str, changed)]
            ),
            hint="its stores are read with the code that has written them: bring that code back into jobs/, and erase",
        )
    return before


def _require_handed_over(paths: PipelinePaths) -> None:
    ownership.require_settled(paths.handovers)
    for _, told in ownership.records(paths.handovers):
        if told.state == "handed over" and told.request.run_id not in paths.switched:
            run = told.request.run_id
            raise ConflictError(
                f"A hand-over of {told.request.pipeline!r} to run {run} was interrupted.",
                hint=f"deltaworks replay {told.request.pipeline} --resume {run} completes it, "
                f"deltaworks rollback {run} takes it back",
            )


def _last_batch(paths: PipelinePaths, before: CheckpointPlan) -> int:
    """The last batch, which is finished everywhere."""
    intents = Intents(LocalFiles(paths.current.intents))
    done = beginning.last_committed(before, beginning.settle(paths, before, intents))
    begun = begun_batch(paths.current.spark)
    intended = intents.last()
    known = {
        done if begun is None else before.first_batch + begun,
        done if intended is None else intended.batch,
        batches.last_number(paths.batches),
    }
    if max(known) > done:
        raise ConflictError(
            f"The stream has begun batch {max(known)} and not finished it; what it has done of it is not in the state "
            "yet, and would be done again.",
            hint=_AGAIN,
        )
    return done
