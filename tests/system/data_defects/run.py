"""A run of a job: its staging tables, and what the gate has to know about them."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltaworks import Pipeline
from deltaworks.control.topics import all_topics
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import TableSchema, plan_schemas
from deltaworks.settings import Settings
from deltaworks.spark.source import TICK
from deltaworks.testing.topics import RawRecord
from jobs.sample_data.kafka import PARTITIONS
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.unit.jobs.recomputing import rows_of

IDLE_MS = 60_000
"""When all is read, a stream still does what waits for the clock."""


@dataclass(frozen=True)
class Run:
    """What a replay up to the end would have written."""

    job: str
    tables: Path
    schemas: Sequence[TableSchema]
    scope: Scope

    @property
    def names(self) -> list[str]:
        return [schema.name for schema in self.schemas]


def run(job: str, home: Path, *, records: int, seed: int, per_batch: int | None = None) -> Run:
    """Processes sample data.

    Args:
        job: name of the pipeline.
        home: an empty folder.
        records: of the main topic.
        seed: of the sample data, and of the cuts into micro-batches.
        per_batch: records of a partition in a batch at most; None: some, by the seed.
    """
    pipeline: Pipeline = importlib.import_module(f"jobs.{job}").pipeline
    data: Any = importlib.import_module(f"jobs.sample_data.{job}")
    rng = random.Random(seed)
    kafka = MemoryKafka(dict.fromkeys(all_topics(pipeline, pipeline.plan()), PARTITIONS))
    for row in rows_of(data.records(records, seed)):
        kafka.write(row.topic, RawRecord(row.key, row.value, row.timestamp_ms), row.partition)
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=home), kafka=kafka)
    stream.run_to_the_end(rng, per_batch or rng.randint(40, 120), elsewhere=None)
    stream.tick(stream.clock(stream.batch_id) + IDLE_MS)
    stream.committer.refresh_snapshots(force=True)
    stream.committer.publish_cut()
    stream.close()
    ends = {topic: parts for topic, parts in stream.offsets.items() if topic != TICK}
    return Run(
        job,
        stream.settings.tables,
        plan_schemas(stream.plan.tables, pipeline.dead_letters.table),
        Scope(end_offsets=ends, last_batch=stream.batch_id - 1),
    )
