"""The state of a stopped stream, from which another checkpoint is made: without a person's data, for more tasks, or for
more cores.

For the holder of the lease, while no driver runs.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from deltaworks.control import batches, fence
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.intents import Intents
from deltaworks.control.paths import CheckpointPaths, PipelinePaths
from deltaworks.errors import ConflictError, IncompatibleCheckpointError
from deltaworks.files import files_in, replace_file
from deltaworks.lakehouse import moved_pages
from deltaworks.lakehouse.publish import ownership
from deltaworks.runtime.state.initial_state import InitialState, path_of
from deltaworks.runtime.state.local_store import LocalStore, discard
from deltaworks.runtime.state.recovery import CommittedState, StateHeader, local_path, open_store
from deltaworks.runtime.task_loop import TaskId
from deltaworks.settings import Settings
from deltaworks.spark import beginning, handover, stored_state
from deltaworks.spark.checkpoint import begun_batch, committed_offsets
from deltaworks.spark.handover import OpenStore
from deltaworks.spark.stored_state import StoredTask
from deltaworks.topology import fingerprint
from deltaworks.topology.plan import Plan

ReadState: TypeAlias = Callable[[Settings, str, Path, Path, Path], None]
"""As `stored_state.read`."""


@dataclass(frozen=True)
class StoppedStream:
    """A stream with a checkpoint that nothing runs.

    Args:
        settings: home, cores, memory.
        plan: of the code that has the stores.
        paths: paths of the pipeline.
        before: the plan of the checkpoint.
        read: reads Spark's state.
    """

    settings: Settings
    plan: Plan
    paths: PipelinePaths
    before: CheckpointPlan
    read: ReadState = stored_state.read

    @classmethod
    def of(
        cls, settings: Settings, plan: Plan, paths: PipelinePaths, read: ReadState = stored_state.read
    ) -> StoppedStream | None:
        """None: the pipeline has never run.

        Raises:
            IncompatibleCheckpointError: the checkpoint was made for another topology, or is damaged.
        """
        before = stored_plan(paths.current.plan)
        if before is None:
            return None
        if changed := fingerprint.differences(before.fingerprint, plan.fingerprint()):
            raise IncompatibleCheckpointError(
                "\n  ".join(
                    [f"the checkpoint of pipeline {plan.name!r} was made for another topology:", *map(str, changed)]
                ),
                hint="its stores are read with the code that has written them: bring that code back into jobs/, and "
                "repeat the command",
            )
        return cls(settings, plan, paths, before, read)

    def require_settled(self) -> None:
        """Raises if a hand-over or a rescale was begun and not finished.

        Raises:
            ConflictError, TableError: it was.
        """
        if moved_pages.is_waiting(self.paths.current.moved_pages):
            raise ConflictError(
                f"A rescale of {self.plan.name!r} was interrupted: its tables do not have all of it yet.",
                hint="start the stream once, which completes it; then repeat the command",
            )
        ownership.require_settled(self.paths.handovers)
        for _, told in ownership.records(self.paths.handovers):
            if told.state == "handed over" and told.request.run_id not in self.paths.switched:
                run = told.request.run_id
                raise ConflictError(
                    f"A hand-over of {told.request.pipeline!r} to run {run} was interrupted.",
                    hint=f"deltaworks replay {told.request.pipeline} --resume {run} completes it, "
                    f"deltaworks rollback {run} takes it back",
                )

    def last_batch(self) -> int:
        """The last batch, which is finished everywhere; settles Spark's checkpoint.

        Raises:
            ConflictError: a batch was begun and not finished.
        """
        current = self.paths.current
        intents = Intents(files_in(current.intents))
        generation = fence.read(self.paths.fence)
        done = beginning.last_committed(self.before, beginning.settle(self.paths, self.before, intents, generation))
        begun = begun_batch(current.spark)
        intended = intents.last()
        known = {
            done if begun is None else self.before.first_batch + begun,
            done if intended is None else intended.batch,
            batches.last_number(self.paths.batches),
        }
        if max(known) > done:
            raise ConflictError(
                f"The stream has begun batch {max(known)} and not finished it; what it has done of it is not in the "
                "state yet, and would be done again.",
                hint="start the stream once more, and stop it when it has caught up",
            )
        return done

    @contextmanager
    def stores(self) -> Iterator[StoppedStores]:
        """Its stores, until the end of the block."""
        shutil.rmtree(self.paths.scratch, ignore_errors=True)
        scratch = self.paths.scratch / secrets.token_hex(4)  # what others that were killed still write is elsewhere
        try:
            current = self.paths.current
            if committed_offsets(current.spark) is not None:
                self.read(self.settings, self.plan.name, current.spark, scratch / "segments", scratch / "spark")
            initial = self.before.initial_state
            yield StoppedStores(scratch, None if initial is None else current.root / initial)
        finally:
            shutil.rmtree(self.paths.scratch, ignore_errors=True)

    def make_next(self, name: str, last_batch: int, open_store: OpenStore, **changes: object) -> CheckpointPaths:
        """Makes a checkpoint that goes on after a batch, as the same query: tables and Kafka see no change.

        Args:
            name: of the checkpoint; the one that runs stays as it is.
            last_batch: the last batch of the checkpoint that runs.
            open_store: opens its stores.
            changes: of its plan.
        """
        running, made = self.paths.current, self.paths.checkpoint_of(name)
        described = msgspec.structs.replace(
            self.before,
            first_batch=last_batch + 1,
            start=handover.offsets_after(self.paths, last_batch) or self.before.start,
            topics=dict(batches.topics_read(batches.read(self.paths.batches)).ids),
            initial_state=None,
        )
        handover.write_checkpoint(made, self.plan, msgspec.structs.replace(described, **changes), open_store)
        for kept, new in ((running.accepted, made.accepted), (running.sizes, made.sizes)):
            if kept.exists():
                replace_file(new, kept.read_bytes(), durable=True)
        return made


@dataclass(frozen=True)
class StoppedStores:
    """The stores as the last committed batch has left them; copies, which may be changed.

    Args:
        scratch: folder for temporary files.
        initial: the initial state of the checkpoint; None: it began with empty stores.
    """

    scratch: Path
    initial: Path | None

    @contextmanager
    def opened(self, stage: int, task: int, stores: dict[str, bool]) -> Iterator[tuple[LocalStore, StateHeader] | None]:
        """The stores of a task, and their version; None: it has not run."""
        state = self._state_of((stage, task))
        if state is None:
            yield None
            return
        path = local_path(self.scratch / "stores", stage, task)
        discard(path)
        with closing(LocalStore(path, stores)) as local:
            header, _ = open_store(local, state)
            yield local, header
        discard(path)

    def _state_of(self, task: TaskId) -> CommittedState | None:
        """What the checkpoint says of a task; None: it has not run."""
        stored = StoredTask(self.scratch / "segments", task)
        if stored.header() is not None:
            return stored
        return None if self.initial is None else InitialState(path_of(self.initial, *task))
