"""The state of all tasks of a stopped stream, as its last committed batch has left it, read out of Spark's checkpoint.

Local stores are no source: they may be behind, or gone. So a small session of its own lets Spark read its state (the
data source `statestore`), and its workers write each value to a file; then `recovery.open_store` brings a store to it
as at the start of a batch. Spark's checkpoint stays as it is.

No process holds more than a few values of Spark's state at once, of 4 MB each; the files need as much room as the
changelog. To open a store takes what a rebuild of that task takes (`recovery`), whatever its size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from deltaworks.object_path import ObjectPath
from deltaworks.runtime.state.recovery import StateHeader, decode_header, local_path
from deltaworks.runtime.task_loop import TaskId
from deltaworks.settings import Settings
from deltaworks.spark import class_data, failures, s3a, session
from deltaworks.spark.checkpoint_files import StateFiles
from deltaworks.spark.task_host import VARIABLE, place_of

_HEADER = "header"
_ONE_BY_ONE = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
"""A value has up to 4 MB, and a task has few of them."""


@dataclass(frozen=True)
class StoredTask:
    """`recovery.CommittedState` of one task over the files that `read` has written.

    Args:
        folder: of all tasks.
        task: stage and number.
    """

    folder: Path
    task: TaskId

    def header(self) -> StateHeader | None:
        """None: Spark's state does not know the task."""
        try:
            data = (local_path(self.folder, *self.task) / _HEADER).read_bytes()
        except FileNotFoundError:
            return None
        return decode_header(data, f"the state of task {self.task} in Spark's checkpoint")

    def segment(self, segment_id: int) -> bytes:
        """One chunk of the changelog."""
        return (local_path(self.folder, *self.task) / str(segment_id)).read_bytes()


def read(settings: Settings, name: str, checkpoint: Path, folder: Path, scratch: Path) -> None:
    """Writes the state of all tasks after the last committed batch to files; see `StoredTask`.

    Args:
        settings: cores, memory, and Spark's settings for the pipeline.
        name: of the pipeline.
        checkpoint: Spark's folder, settled, with a committed batch; nothing else uses it.
        folder: a new folder for the files.
        scratch: for Spark's temporary files.

    Raises:
        QueryError: Spark cannot read it.
    """
    folder.mkdir(parents=True)
    spark = session.build(
        f"deltaworks-state-{name}",
        cores=min(settings.cores, os.cpu_count() or 1),  # of this machine: tasks of the stream may run elsewhere
        partitions=1,
        driver_memory=settings.driver_memory,
        scratch=scratch,
        python_path=settings.joined_python_path,
        options=class_data.option(settings),
        extra=s3a.with_jars(settings, checkpoint, settings.spark_of(name)) | _ONE_BY_ONE,
    )
    try:
        if isinstance(checkpoint, ObjectPath):
            s3a.reach(spark, checkpoint, scratch)
        _ = spark.streams.active  # registers the coordinator of state stores, without which none can be loaded
        for operator in StateFiles(checkpoint, None).operators():
            _read_operator(spark, checkpoint, int(operator.name), folder)
    except PySparkException as error:
        raise failures.as_error(error) from error
    finally:
        spark.stop()


def _read_operator(spark: SparkSession, checkpoint: Path, operator: int, folder: Path) -> None:
    """Each operator has other tasks, so their order does not matter."""
    options = {"operatorId": str(operator), "stateVarName": VARIABLE}
    state = spark.read.format("statestore").options(**options).load(str(checkpoint))
    entries = state.select(f.col("user_map_key.key").alias("key"), f.col("user_map_value.value").alias("value"))
    entries.mapInArrow(partial(_write, folder), "entries bigint").collect()


def _write(folder: Path, entries: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the entries of one partition; a second attempt replaces the files of the first one."""
    count = 0
    for batch in entries:
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            task, segment = place_of(key)
            path = local_path(folder, *task) / (_HEADER if segment is None else str(segment))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(value)
            count += 1
    yield pa.RecordBatch.from_pydict({"entries": [count]})
