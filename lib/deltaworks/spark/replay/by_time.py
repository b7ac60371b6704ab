"""A replay in the order of timestamps instead of the order in which the stream happened to process.

Spark sorts all records of each topic-partition by timestamp, then offset, into a file (`sort`). The files are cut at
the same times (`steps`): each slice is a micro-batch, whose `Range`s hold positions in a file instead of offsets. With
the reader of the files (`ByTime`) the host runs them like recorded batches; within a slice the kernel merges
partitions by time, as always.

The time of a record is its time in Kafka, whatever a timestamp extractor returns. Records of one time share a slice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.object_path import ObjectPath, place_below
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.replay.sorted_files import (
    GROUP_ROWS,
    ByTimeReader,
    SortedFile,
    read_rows,
    sorted_files,
    write_sorted,
)
from deltaworks.runtime.replay.steps import Step
from deltaworks.spark import failures
from deltaworks.spark.executor import of_executor

_PIECE_OFFSETS = 200_000
"""Offsets that a Spark task reads at once."""
_SAMPLE_ROWS = 100
"""One row in so many is sampled to find where slices end."""

_SPARK_SCHEMA = (
    "topic string, partition int, timestamp_ms bigint, offset bigint, key binary, value binary, "
    "headers array<struct<name: string, value: binary>>"
)
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ORDER = ("topic", "partition", "timestamp_ms", "offset")


def in_order_of_time(
    spark: SparkSession,
    history: Callable[[], Reader],
    recorded: Sequence[Step],
    folder: Path,
    batches: tuple[int, int],
) -> list[Step]:
    """Slices of all records in the order of their timestamps.

    Args:
        spark: sorts the records.
        history: has the records.
        recorded: what the stream did.
        folder: for the sorted files.
        batches: the first and the last one.
    """
    sort(spark, history, joined(recorded), folder)
    return steps(
        folder,
        batches=batches,
        last_wall_ms=recorded[-1].wall_ms,
        tick=any(step.tick for step in recorded),
        global_offsets=recorded[-1].globals,
    )


def sort(spark: SparkSession, history: Callable[[], Reader], ranges: Sequence[Range], folder: Path) -> None:
    """Sorts the records of the ranges, one per topic-partition, into files; does nothing if they exist.

    Args:
        spark: sorts the records; what does not fit into memory goes to its disks.
        history: makes readers, in any process.
        ranges: one per topic-partition.
        folder: for the files; of this machine if all workers are, else in an object store.

    Raises:
        KafkaReadError: records are gone, or the broker did not answer.
    """
    done = folder / "done"
    if done.exists():
        return
    pieces = [
        (each.topic, each.partition, start, min(start + _PIECE_OFFSETS, each.stop))
        for each in ranges
        for start in range(each.start, each.stop, _PIECE_OFFSETS)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    if pieces:
        wanted = spark.createDataFrame(pieces, "topic string, partition int, start bigint, stop bigint")
        records = wanted.repartition(len(pieces)).mapInArrow(partial(_read, history), _SPARK_SCHEMA)
        in_order = records.repartition(len(ranges), "topic", "partition").sortWithinPartitions(*_ORDER)
        with _large_batches(spark):
            try:
                in_order.mapInArrow(partial(_write, folder), "rows bigint").collect()
            except PySparkException as error:
                raise failures.as_error(error) from error
    done.touch()


def joined(steps: Iterable[Step]) -> list[Range]:
    """The records that all steps read, as one range per topic-partition."""
    found: dict[tuple[str, int], Range] = {}
    for step in steps:
        for each in step.ranges:
            before = found.setdefault((each.topic, each.partition), each)
            start, stop = min(before.start, each.start), max(before.stop, each.stop)
            found[each.topic, each.partition] = Range(each.topic, each.partition, start, stop)
    return [found[part] for part in sorted(found)]


def steps(
    folder: Path,
    *,
    batches: tuple[int, int],
    last_wall_ms: int,
    tick: bool,
    global_offsets: Offsets,
    step_records: int = 10_000,
) -> list[Step]:
    """The slices as micro-batches, all with the same end in every topic-partition.

    Args:
        folder: folder of the files, see `sort`.
        batches: first and last recorded batch. The ids end with the last one, since tables say by batch ids which rows
            a replay stands for; there are no more slices than ids.
        last_wall_ms: of the last recorded batch; the clock of a slice is the time of its end, but not later than this.
        tick: tasks that depend on the wall clock run in every slice.
        global_offsets: how far global tables have been read by the end; every slice sees them like that.
        step_records: approximate number of records per slice.
    """
    files = {part: SortedFile(path) for part, path in sorted_files(folder).items()}
    with ExitStack() as opened:
        for file in files.values():
            opened.callback(file.close)
        borders = _borders(files.values(), step_records, batches[1] - batches[0] + 1)
        ends = {part: file.positions(borders) for part, file in files.items()}
    found = []
    for number, border in enumerate(borders):
        ranges = []
        for (topic, partition), positions in sorted(ends.items()):
            start = positions[number - 1] if number else 0
            if positions[number] > start:
                ranges.append(Range(topic, partition, start, positions[number]))
        batch, wall_ms = batches[1] - len(borders) + 1 + number, min(max(border - 1, 0), last_wall_ms)
        found.append(Step(batch=batch, wall_ms=wall_ms, ranges=tuple(ranges), tick=tick, globals=global_offsets))
    return found


@dataclass(frozen=True)
class ByTime:
    """Makes readers of sorted files; is sent to the processes that read."""

    folder: Path
    history: Callable[[], Reader]
    """For the topics of global tables, which are not sorted."""

    def __call__(self) -> ByTimeReader:
        return ByTimeReader(self.folder, self.history)


def _read(history: Callable[[], Reader], pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker."""
    reader = history()
    try:
        for batch in pieces:
            for piece in batch.to_pylist():
                wanted = Range(piece["topic"], piece["partition"], piece["start"], piece["stop"])
                yield from read_rows(reader, wanted)
    finally:
        reader.close()


def _write(folder: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a worker."""
    if isinstance(folder, ObjectPath):
        place_below(of_executor() / "sorted" / str(os.getpid()), folder)
    for rows in write_sorted(folder, batches):
        yield pa.record_batch([pa.array([rows], pa.int64())], ["rows"])


@contextmanager
def _large_batches(spark: SparkSession) -> Iterator[None]:
    """A stream hands few large rows to Python; this job hands over many small ones."""
    before = spark.conf.get(_ARROW_ROWS)
    spark.conf.set(_ARROW_ROWS, str(GROUP_ROWS))
    try:
        yield
    finally:
        spark.conf.set(_ARROW_ROWS, str(before))


def _borders(files: Collection[SortedFile], step_records: int, at_most: int) -> list[int]:
    """Where slices end: times before which their records are."""
    total = sum(file.count for file in files)
    if not total:
        return [0]
    samples = sorted(time_ms for file in files for time_ms in file.samples(_SAMPLE_ROWS))
    every = max(1, max(step_records, total // at_most) // _SAMPLE_ROWS)
    newest_ms = max(file.newest_ms for file in files)
    found = [*sorted({time_ms + 1 for time_ms in samples[every - 1 :: every] if time_ms < newest_ms}), newest_ms + 1]
    too_many = -(-len(found) // at_most)
    return found[::-1][::too_many][::-1]
