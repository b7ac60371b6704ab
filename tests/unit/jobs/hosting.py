"""A job on the streaming host's own tasks, with failures: its topics and Delta tables against the recomputation.

```python
connection = hosted(recomputation, pipeline, rows_of(records(1_000)), tmp_path, random.Random(1))
assert differences(recomputation, connection) == {}
```
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from deltaworks import Pipeline
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from jobs.recomputed.results import Recomputation, read_batches, records_table
from jobs.sample_data.kafka import PARTITIONS
from tests.faults.points import DRIVER, WORKER
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.unit.jobs.recomputing import Row


def hosted(
    recomputation: Recomputation,
    pipeline: Pipeline,
    rows: Sequence[Row],
    home: Path,
    rng: random.Random,
    *,
    records_per_batch: int = 60,
) -> duckdb.DuckDBPyConnection:
    """A connection with the views of both sides, after a run on the streaming host's own tasks, Spark and Kafka apart.

    Batches are cut at random, two of three have a failure at some point, workers and disks are lost between them.

    Args:
        recomputation: what must come out.
        pipeline: what runs.
        rows: the input.
        home: where it may write.
        rng: decides about cuts and failures.
        records_per_batch: at most, per topic-partition.
    """
    kafka = MemoryKafka(dict.fromkeys((*recomputation.inputs, *recomputation.topics), PARTITIONS))
    for row in rows:
        kafka.write(row.topic, RawRecord(row.key, row.value, row.timestamp_ms), row.partition)
    points = [
        *WORKER,
        *(point for point in DRIVER if ":" not in point),
        *(f"delta.{when}_commit:{table}" for when in ("before", "after") for table in recomputation.tables),
    ]
    stream = InProcessStream(pipeline, Settings.from_environment({"DELTAWORKS_HOME": str(home)}), kafka=kafka)

    def failures(batch: int) -> list[str]:
        if batch % 4 == 1:
            stream.lose_worker()
        if batch % 5 == 4:
            stream.lose_disk(rng.choice(list(stream.routes)))
        return rng.sample(points, rng.randrange(3))

    stream.run_to_the_end(rng, records_per_batch, failures)
    stream.close()
    connection = duckdb.connect()
    recomputation.recompute(connection, _records_in(kafka, recomputation.inputs), *read_batches(stream.batches))
    tables = {name: DeltaTable(stream.settings.tables / name).to_pyarrow_table() for name in recomputation.tables}
    recomputation.put_beside(connection, _records_in(kafka, recomputation.topics), tables)
    return connection


def _records_in(kafka: MemoryKafka, topics: Sequence[str]) -> pa.Table:
    return records_table(
        (topic, partition, offset, record.timestamp_ms, record.key, record.value, list(record.headers))
        for topic in topics
        for partition, offset, record in kafka.read(topic)
    )
