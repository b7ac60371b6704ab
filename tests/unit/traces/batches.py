"""Figures of batches as a driver notes them."""

from __future__ import annotations

from deltaworks.control.intents import Intent
from deltaworks.kafka.ranges import Range
from deltaworks.lakehouse.committer import TableCommit
from deltaworks.lakehouse.snapshots import SnapshotRefresh
from deltaworks.lakehouse.writes import NewFile, TableWrite
from deltaworks.runtime.arrivals import Arrival
from deltaworks.runtime.messages import TaskCounts, TaskResult
from deltaworks.traces.figures import BatchFigures

BEGUN_S = 5_000.0
"""When a batch begins, in ticks."""
BEGUN_MS = 1_800_000_000_000
"""The same on the wall clock."""
SPARK = {
    "triggerExecution": 1.5,
    "latestOffset": 0.125,
    "getBatch": 0.0,
    "queryPlanning": 0.0625,
    "walCommit": 0.03125,
    "addBatch": 1.0,
    "commitOffsets": 0.25,
}
"""What Spark tells of it."""
PHASES = {"open": 0.0625, "read": 0.125, "process": 0.25, "commit": 0.0625, "keep": 0.03125}
SECRET = "the value of a record"


def result(task: int, *, stage: int = 0, records: int = 100, late_ms: int = 0) -> TaskResult:
    """A task that has processed its records half a second after the batch began, on a clock that is so much late."""
    counts = TaskCounts(
        records_in=records,
        dropped=1,
        late=0,
        lost_results=0,
        dead_letters=0,
        sent=records,
        stream_time_ms=0,
        next_tick_ms=None,
        phases=dict(PHASES),
        arrivals=[Arrival(BEGUN_MS, BEGUN_MS, records)],
        processed_ms=BEGUN_MS + 500 - late_ms,
        committed_ms=BEGUN_MS + 600 - late_ms,
        transaction_s=0.03125,
    )
    ranges = [Range("orders", task, 1_000, 1_000 + records)] if stage == 0 else []
    statistics = f'{{"maxValues":{{"name":"{SECRET}"}}}}'
    writes = [TableWrite("copies", task, (NewFile(f"part-{task}.parquet", 9, records, statistics),), ("old.parquet",))]
    return TaskResult(stage, task, ranges, counts, writes, "applied", False)


def results(tasks: int, exchanged: int = 0) -> list[TaskResult]:
    """Those of tasks that read from Kafka, and of those that get their records."""
    return [*map(result, range(tasks)), *(result(task, stage=1) for task in range(exchanged))]


def figures(batch_id: int = 41, *, tasks: int = 4, exchanged: int = 0, spark: bool = True) -> BatchFigures:
    """A batch that took a second: tasks until 750 ms, tables until 875 ms.

    Args:
        batch_id: its id.
        tasks: how many read from Kafka.
        exchanged: how many of a second stage get the records from those.
        spark: whether Spark has told of it.
    """
    batch = begun(batch_id, tasks=tasks)
    batch.processed(results(tasks, exchanged), BEGUN_S + 0.75)
    batch.commits = [
        TableCommit("copies", batch_id, 7, False, 100 * tasks, 0.0625, BEGUN_S + 0.75),
        TableCommit("counts", batch_id, 8, False, 5, 0.03125, BEGUN_S + 0.8125),
    ]
    batch.refreshed = [SnapshotRefresh("users", batch_id, BEGUN_MS, 10, 3.0)]
    batch.committed_s = BEGUN_S + 0.875
    batch.end(BEGUN_S + 1.0, (BEGUN_MS + 1_000) * 1_000_000)
    if spark:
        batch.spark_phases = SPARK
    return batch


def begun(batch_id: int = 41, *, tasks: int = 4) -> BatchFigures:
    """A batch that goes on."""
    intent = Intent(
        batch=batch_id,
        lineage="l",
        query="q",
        generation=3,
        code="c0de",
        clock_ms=BEGUN_MS,
        tick=True,
        ranges=[Range("orders", task, 1_000, 1_100) for task in range(tasks)],
        end={},
        previous="",
    )
    return BatchFigures(batch_id=batch_id, generation=3, query_id="q", begun_s=BEGUN_S, intent=intent)
