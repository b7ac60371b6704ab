"""What a driver notes of a batch while it runs. Whatever is not known of a batch that fails stays empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from deltaworks.control.intents import Intent
from deltaworks.lakehouse.committer import TableCommit
from deltaworks.lakehouse.snapshots import SnapshotRefresh
from deltaworks.runtime.messages import TaskResult


@dataclass(kw_only=True)
class BatchFigures:
    """One batch of one driver; moments are ticks in seconds (`clock.ticks_s`)."""

    batch_id: int
    generation: int
    query_id: str
    """The checkpoint."""
    begun_s: float
    """When Spark handed the batch to the driver, after its plan."""
    intent: Intent | None = None
    results: Sequence[TaskResult] = ()
    """What its tasks have done, without what no trace has."""
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Table -> how many files the tasks have added and removed."""
    processed_s: float | None = None
    """When all tasks had answered."""
    commits: Sequence[TableCommit] = ()
    refreshed: Sequence[SnapshotRefresh] = ()
    committed_s: float | None = None
    """When all tables were committed."""
    ended_s: float | None = None
    """When the batch ended, or failed."""
    ended_ns: int = 0
    """The same moment on the wall clock."""
    error: str | None = None
    """The type of the error that ended it."""
    spark_phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of its parts, as Spark says; empty: it has not."""

    def processed(self, results: Sequence[TaskResult], now_s: float) -> None:
        """All tasks have answered. Figures may wait for their receiver, so statistics of files, say, are not kept."""
        files: Counter[tuple[str, bool]] = Counter()
        for write in (write for result in results for write in result.writes):
            files[write.table, True] += len(write.added)
            files[write.table, False] += len(write.removed)
        self.files = {table: (files[table, True], files[table, False]) for table, _ in files}
        self.results, self.processed_s = [_slim(result) for result in results], now_s

    def end(self, now_s: float, now_ns: int, error: BaseException | None = None) -> None:
        """The batch has ended, with an error or without."""
        self.ended_s, self.ended_ns = now_s, now_ns
        if error is not None:
            kind = type(error)
            self.error = (
                kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
            )

    def wall_ns(self, ticks_s: float) -> int:
        """A moment of this batch on the wall clock, as it was set at its end."""
        assert self.ended_s is not None, "it has not ended"
        return self.ended_ns - round((self.ended_s - ticks_s) * 1e9)

    @property
    def records(self) -> int:
        """How many records it has read from Kafka, or was to read; exchanged ones do not count again."""
        return 0 if self.intent is None else self.intent.records


def _slim(result: TaskResult) -> TaskResult:
    counts = replace(result.counts, sizes=[], requests={}, stores={}, arrivals=[])
    return replace(result, counts=counts, writes=[])
