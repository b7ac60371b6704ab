"""Where a stream's committed batches are noted, and where its stores are.

In a home on this machine, Spark's own notes and the intents say which batch is committed, and the stores are beside
them (`InHome`). Otherwise the driver says so in a file of its home (`control.served`): the stores are on this machine,
too, or beside executors, whose servers are asked (`Announced`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deltaworks.control import served
from deltaworks.control.checkpoint import CheckpointPlan, stored_plan
from deltaworks.control.intents import Intent, Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.served import Served
from deltaworks.errors import ConfigurationError
from deltaworks.files import files_in
from deltaworks.kafka.ranges import of_topics
from deltaworks.object_path import ObjectPath
from deltaworks.queries.answers import AsOf
from deltaworks.queries.commits import Commits
from deltaworks.queries.remote import RemoteState, RemoteTask, Servers
from deltaworks.runtime.state.local_store import stores_of
from deltaworks.runtime.state.task_reader import IntentOf, TaskReader, TaskReaders, TaskState, unavailable
from deltaworks.topology.stages import Stage

State = TaskState | RemoteState
_BATCHES = 64
"""Number of batches that are remembered."""
_Stamp = tuple[int, int] | None


class Reader(Protocol):
    """Opens the stores of a task; see `TaskReader`."""

    def begin(self, batch: int, intent_of: IntentOf) -> State: ...

    def begin_newest(self) -> State: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class Moment(Protocol):
    """What is known of a checkpoint at the time of one answer."""

    def last(self) -> int | None:
        """The id of the last committed batch; None: there is none."""

    def digest(self, batch: int) -> str | None:
        """The digest of the intent of a committed batch; None: it is not known any more."""

    def as_of(self, batch: int) -> AsOf:
        """What an answer of the last committed batch says of it.

        Raises:
            StoreUnavailableError: it is not known any more.
        """

    def reader(self, stage: Stage, task: int | None) -> Reader:
        """Of a task; None: of a global stage.

        Raises:
            StoreUnavailableError: nobody knows where it is.
        """


class Source(Protocol):
    """One checkpoint of a stream."""

    @property
    def plan(self) -> CheckpointPlan: ...

    @property
    def is_elsewhere(self) -> bool:
        """Its stores are beside executors, and any number of threads may ask; those of this machine one at a time."""

    def is_current(self) -> bool:
        """Whether it is still the checkpoint that runs."""

    def moment(self) -> Moment:
        """What is known now."""

    def close(self) -> None: ...


def source_of(name: str, paths: PipelinePaths) -> Source:
    """The checkpoint that runs.

    Args:
        name: of the pipeline.
        paths: of it.

    Raises:
        ConfigurationError: the stream has never run in this home.
        StoreUnavailableError: its driver has not committed a batch yet.
    """
    return Announced(name, paths) if isinstance(paths.lasting, ObjectPath) else InHome(name, paths)


def _stamp(file: str) -> _Stamp:
    """Changes whenever a file is replaced; None: there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 (it is called for every answer)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


@dataclass(frozen=True)
class _Batch:
    """What is remembered of a batch."""

    intent: str
    """The digest."""
    as_of: AsOf

    @classmethod
    def of(cls, intent: Intent) -> _Batch:
        as_of = AsOf(batch=intent.batch, time_ms=intent.clock_ms, offsets=of_topics(intent.end))
        return cls(intent.digest, as_of)


class InHome:
    """`Source` and `Moment` of a checkpoint that is in a home of this machine. See `source_of`."""

    is_elsewhere = False

    def __init__(self, name: str, paths: PipelinePaths) -> None:
        self._pointer = str(paths.pointer)
        pointer, current = _stamp(self._pointer), paths.current
        self._plan_file = str(current.plan)
        self._stamp = pointer, _stamp(self._plan_file)
        stored = stored_plan(current.plan)
        if stored is None:
            raise _never_ran(name, current.plan)
        self.plan: CheckpointPlan = stored
        self._intents = Intents(files_in(current.intents))
        self._commits = Commits(current.spark / "commits")
        self._batches: dict[int, _Batch] = {}
        self._readers = TaskReaders(current.local)

    def is_current(self) -> bool:
        """A handover or a rescale switches to another one, and a start may renew its plan."""
        return self._stamp == (_stamp(self._pointer), _stamp(self._plan_file))

    def moment(self) -> InHome:
        return self

    def last(self) -> int | None:
        last = self._commits.last()
        return None if last is None else last + self.plan.first_batch

    def digest(self, batch: int) -> str | None:
        found = self._batch(batch)
        return None if found is None else found.intent

    def as_of(self, batch: int) -> AsOf:
        found = self._batch(batch)
        if found is None:
            raise unavailable(f"the intent of batch {batch} is gone")
        return found.as_of

    def reader(self, stage: Stage, task: int | None) -> TaskReader:
        return self._readers.reader(stage.index, task, stores_of(stage))

    def close(self) -> None:
        self._readers.close()

    def _batch(self, batch: int) -> _Batch | None:
        """A committed batch, whose intent nobody replaces any more."""
        found = self._batches.get(batch)
        if found is None and (intent := self._intents.get(batch)) is not None:
            while len(self._batches) >= _BATCHES:
                del self._batches[next(iter(self._batches))]
            found = self._batches[batch] = _Batch.of(intent)
        return found


class Announced:
    """`Source` of a checkpoint of which a driver tells. See `source_of`."""

    def __init__(self, name: str, paths: PipelinePaths) -> None:
        self._file = paths.served
        self._stamp = _stamp(str(self._file))
        told = served.read(self._file)
        if told is None:
            if not paths.heartbeat.exists():
                raise _never_ran(name, self._file)
            raise unavailable("no batch of the stream's checkpoint is committed yet, as far as its driver has told")
        self.plan: CheckpointPlan = told.plan
        self._servers = Servers(told.token) if told.token else None
        self._readers = TaskReaders(Path(told.local))
        self._now = _Told(told, self._servers, self._readers)

    @property
    def is_elsewhere(self) -> bool:
        return self._servers is not None

    def is_current(self) -> bool:
        """A start, a handover or a rescale begins another one; a batch only tells more of this one."""
        stamp = _stamp(str(self._file))
        if stamp != self._stamp:
            told, before = served.read(self._file), self._now.told
            if told is None or (told.plan, told.local, told.token) != (before.plan, before.local, before.token):
                return False
            self._stamp, self._now = stamp, _Told(told, self._servers, self._readers)
        return True

    def moment(self) -> _Told:
        return self._now

    def close(self) -> None:
        self._readers.close()
        if self._servers is not None:
            self._servers.close()


class _Told:
    """`Moment` of what a driver has told last."""

    def __init__(self, told: Served, servers: Servers | None, readers: TaskReaders) -> None:
        self.told, self._servers, self._readers = told, servers, readers
        self._intents = dict(told.intents)

    def last(self) -> int:
        return self.told.batch

    def digest(self, batch: int) -> str | None:
        return self._intents.get(batch)

    def as_of(self, batch: int) -> AsOf:
        assert batch == self.told.batch
        return AsOf(batch=batch, time_ms=self.told.clock_ms, offsets=self.told.offsets)

    def reader(self, stage: Stage, task: int | None) -> Reader:
        told, servers = self.told, self._servers
        if servers is None:
            return self._readers.reader(stage.index, task, stores_of(stage))
        any_url = next(filter(None, told.servers.values()), "")
        url = any_url if task is None else told.servers.get(served.name_of(stage.index, task), "")
        if not url:
            raise unavailable(told.trouble or f"nobody knows yet where task {stage.index}-{task} runs")
        return RemoteTask(servers, url, stage.index, task, told.intents)


def _never_ran(name: str, file: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{name!r} has never run in this home: there is no {file}.", hint=f"deltaworks deploy {name}"
    )
