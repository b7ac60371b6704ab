"""Streams in one process, and what `deltaworks explain` says of their rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.explain.explaining import Explanation, explain
from deltaworks.explain.question import Question
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.schema import Role, TableSchema, schemas
from deltaworks.replay.model import ReplayPlan
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.history import HistoryReader
from deltaworks.testing.cases import plain_cell
from deltaworks.topology.archives import Archives
from deltaworks.topology.records import Coordinates
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryBroker, MemoryKafka


@dataclass
class Explained:
    """Explains rows of a stream that has run."""

    stream: InProcessStream

    @property
    def kafka(self) -> MemoryKafka:
        assert self.stream.kafka is not None
        return self.stream.kafka

    def history(self, plan: ReplayPlan) -> Reader:
        """Kafka and the archives."""
        archive = ArchiveReader(self.stream.settings.tables, Archives.of(self.stream.plan), plan.topics.get)
        return HistoryReader(self.kafka.reader, archive, gone=plan.gone)

    def __call__(self, question: Question, *, pipeline: Pipeline | None = None, **options: Any) -> Explanation:
        return explain(
            self.stream.settings,
            pipeline or self.stream.pipeline,
            question,
            broker=MemoryBroker(self.kafka),  # type: ignore[arg-type]
            connect=self.history,
            **options,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table, in an order that does not depend on files."""
        return sorted(DeltaTable(self.stream.settings.tables / table).to_pyarrow_table().to_pylist(), key=repr)

    def tables(self) -> list[TableSchema]:
        """The tables whose rows can be explained."""
        return [schema for sink in self.stream.plan.tables for schema in schemas(sink)]

    def questions(self, schema: TableSchema, count: int, rng: random.Random) -> list[Question]:
        """Random rows of a table."""
        rows = self.rows(schema.name)
        return [asked(schema, row) for row in rng.sample(rows, min(count, len(rows)))]


def asked(schema: TableSchema, row: dict[str, Any]) -> Question:
    """The question for a row, as somebody asks it on the command line."""
    key = tuple(str(plain_cell(row[name])) for name in schema.key_names)
    source = None
    if schema.role in (Role.APPEND, Role.CHANGELOG):
        source = Coordinates(row["source_topic"], row["source_partition"], row["source_offset"])
    return Question(schema.name, key, row.get("window_start"), source)
