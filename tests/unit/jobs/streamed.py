"""A job on the streaming host's own tasks, stores, transactions and Delta commits, beside its recomputation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from deltaworks import Pipeline
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from jobs.recomputed.results import Recomputation, read_batches, records_table
from jobs.sample_data.kafka import PARTITIONS
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.unit.jobs.recomputing import Row

POINTS = ["task.processed", "task.flushed", "store.after_apply", "store.after_append", "driver.after_tables"]


def streamed(
    recomputation: Recomputation,
    pipeline: Pipeline,
    rows: Sequence[Row],
    home: Path,
    rng: random.Random,
    records_per_batch: int = 60,
    **options: Any,
) -> duckdb.DuckDBPyConnection:
    """A connection with the views "expected <result>" and "found <result>" after a run with failures in every batch.

    Args:
        recomputation: of the job.
        pipeline: the job.
        rows: the records of all its topics.
        home: an empty folder, for tables and stores.
        rng: decides the cuts and the failures.
        records_per_batch: at most, per partition.
        options: of `InProcessStream`.
    """
    kafka = MemoryKafka(dict.fromkeys((*recomputation.inputs, *recomputation.topics), PARTITIONS))
    for row in rows:
        kafka.write(row.topic, RawRecord(row.key, row.value, row.timestamp_ms), row.partition)
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=home), kafka=kafka, **options)
    stream.run_to_the_end(rng, records_per_batch, lambda _: rng.sample(POINTS, 2))
    stream.close()
    assert stream.failed_at >= set(POINTS)

    connection = duckdb.connect()
    inputs = records_table((r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value, []) for r in rows)
    recomputation.recompute(connection, inputs, *read_batches(stream.batches))
    outputs = records_table(
        (topic, partition, offset, record.timestamp_ms, record.key, record.value, list(record.headers))
        for topic in recomputation.topics
        for partition, offset, record in kafka.read(topic)
    )
    tables = {name: DeltaTable(stream.settings.tables / name).to_pyarrow_table() for name in recomputation.tables}
    recomputation.put_beside(connection, outputs, tables)
    return connection
