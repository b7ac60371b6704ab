"""Sinks that authors write: other destinations for a stream's records than Kafka topics and Delta tables.

A `Sink` opens a `SinkWriter` per task. A task hands its writer the records of each micro-batch at once and in order,
with the identity of the batch. The same batch always has the same records, so there are two ways to be exact:

- *idempotent*: `committed` returns None, and writing a batch once more changes nothing (files named after the batch,
  rows replaced by key);
- *transactional*: the writer records the last committed batch in the same transaction as the records, and
  `committed` returns it. A batch that is already there is not written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from deltaworks.topology.records import Headers

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


@dataclass(frozen=True)
class SinkRecord(Generic[K_co, V_co]):
    """A record that arrives at a sink."""

    key: K_co
    value: V_co
    timestamp_ms: int
    headers: Headers
    as_read: Any = field(default=None, compare=False, repr=False)
    """For the dead letter of a record that the sink refuses: the record that it comes from."""


@dataclass(frozen=True)
class RefusedRecord(Generic[K_co, V_co]):
    """A record that the system behind a sink will never take, and why."""

    record: SinkRecord[K_co, V_co]
    """As it came to `SinkWriter.write`."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class SinkTask:
    """The task for which a writer is opened."""

    pipeline: str
    sink: str
    """The name in the topology."""
    task: int
    """The task's number; two tasks never get the same record."""
    checkpoint: str
    """A stream that begins with a new checkpoint counts its batches from zero."""
    generation: int = 0
    """Of the driver: each start of the stream has a higher one, whatever its checkpoint. 0 in a replay."""
    replay: str | None = None
    """The run of a replay; None: the live stream."""

    @property
    def id(self) -> str:
        """Identity of the one writer that may commit at a time, for use as a transactional id."""
        return "/".join((self.pipeline, self.sink, str(self.task), self.replay or self.checkpoint))


@dataclass(frozen=True)
class SinkBatch:
    """The identity of a micro-batch."""

    batch: int
    intent: str
    """A digest of the batch's meaning; the same batch has the same digest, whoever runs it."""


class SinkWriter(Protocol[K_contra, V_contra]):
    """Writes the records of one task. All calls come from one thread. If a call raises, the batch runs again."""

    def committed(self) -> SinkBatch | None:
        """The last batch that this task has committed, whoever wrote it; ends what an earlier writer has left open.

        None if there is none, or if writing a batch again does no harm.
        """

    def write(
        self, batch: SinkBatch, records: Sequence[SinkRecord[K_contra, V_contra]]
    ) -> Sequence[RefusedRecord[Any, Any]] | None:
        """Writes all records of a batch, not yet visible to others; it is not called for a batch without records.

        Returns:
            Records that the system will not take. They fail as others do (`Pipeline(on_error=...)`); a dead letter is
            committed with the batch. Only a sink with `may_refuse = True` returns any, and only if writing a batch
            again does no harm: then the dead letters of a batch that runs again are written again, too.
        """

    def prepare(self) -> None:
        """Checks that `commit` can succeed; the sinks of a task commit after all of them are prepared."""

    def commit(self) -> None:
        """Makes the records visible and durable, all or none, together with the identity of the batch."""

    def abort(self) -> None:
        """Drops everything that is not committed."""

    def close(self) -> None:
        """Releases connections and files."""


class Sink(Protocol[K_contra, V_contra]):
    """A sink is sent to the workers with the topology, so it holds settings and no connections."""

    def open(self, task: SinkTask) -> SinkWriter[K_contra, V_contra]:
        """A writer for a task; a process opens one per task, another after an error, and in a replay one per chunk."""


AnySink = Sink[Any, Any]
