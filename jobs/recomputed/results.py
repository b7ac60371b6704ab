"""Recomputes every result of a job from its input topics and compares; it shares no code with the pipeline.

The recomputation is plain DuckDB: `common.sql`, then `<job>.sql`, which makes a view "expected <result>" for each Delta
table and output topic. `<job>_found.sql` makes a view "found <result>" of the actual rows, with the same columns. This
module only reads topics, tables and the stream's record of its batches (their order decides which user an order meets
and which record is late), and compares. A job whose records are in no format that DuckDB reads has functions that
decode them, with libraries that the pipeline does not use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from deltaworks.config import Kafka, client_settings
from deltaworks.serdes.schemas import OF_THIS_PROCESS, Schemas

_HERE = Path(__file__).parent
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_RECORD = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_BATCH = pa.schema(
    [
        ("batch", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
    ]
)
_CLOCK = pa.schema([("batch", pa.int64()), ("wall_clock_ms", pa.int64()), ("tick", pa.bool_())])
Decode: TypeAlias = Callable[[pa.Table, Schemas], pa.Table]
"""From records, as `records_table` makes them, to what is in them; the registry has the schemas that they name."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of one table or topic with its recomputation."""

    name: str
    kind: str
    """`table` or `topic`."""
    expected: int
    """Rows."""
    found: int
    differences: tuple[str, ...]
    """The first rows that are missing (-) or unexpected (+)."""
    different: int
    """The number of rows that are missing or unexpected."""

    @property
    def equal(self) -> bool:
        """Whether no row is missing or unexpected."""
        return self.different == 0


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """The inputs and results of a job, and the recomputation of the results."""

    job: str
    inputs: tuple[str, ...]
    """The topics that it reads; the first one decides the number of tasks."""
    topics: tuple[str, ...]
    """The topics that it writes."""
    tables: tuple[str, ...]
    """The Delta tables that it writes."""
    others: tuple[str, ...] = ()
    """Other comparisons, such as between two tables."""
    decode_inputs: Decode | None = None
    """Makes the relation "decoded inputs" for `<job>.sql`; None: DuckDB reads the records itself."""
    decode_outputs: Decode | None = None
    """Likewise "decoded outputs", for `<job>_found.sql`."""

    @property
    def results(self) -> tuple[str, ...]:
        """Every comparison."""
        return (*self.tables, *self.others, *self.topics)

    def check(
        self, bootstrap: Kafka, tables: Path, batches: Path, schemas: Schemas = OF_THIS_PROCESS
    ) -> list[Comparison]:
        """Reads everything and compares.

        Args:
            bootstrap: the cluster.
            tables: folder with the Delta tables.
            batches: folder with the stream's record of its batches.
            schemas: the registry, if records name schemas.

        Raises:
            ValueError: the stream has not read everything, or records that it has read are no longer in Kafka.
        """
        connection = duckdb.connect()
        inputs, tasks = read_topics(bootstrap, self.inputs)
        self.recompute(connection, inputs, *read_batches(batches), tasks, schemas)
        outputs, _ = read_topics(bootstrap, self.topics)
        self.put_beside(connection, outputs, {name: _read_table(tables / name) for name in self.tables}, schemas)
        return self.compare_all(connection)

    def recompute(
        self,
        connection: duckdb.DuckDBPyConnection,
        records: pa.Table,
        batches: pa.Table,
        clock: pa.Table,
        tasks: int = 4,
        schemas: Schemas = OF_THIS_PROCESS,
    ) -> None:
        """Makes the views "expected <result>" in the connection.

        Args:
            connection: the connection that gets the views.
            records: all records of the input topics, from `records_table`.
            batches: the offsets of each batch of the stream, from `batches_table`.
            clock: the time of each batch, from `clock_table`.
            tasks: number of partitions of the input topics, which is the number of tasks of each stage.
            schemas: the registry, if records name schemas.
        """
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET VARIABLE tasks = ?", [tasks])
        connection.execute("CREATE OR REPLACE TABLE records AS SELECT * FROM records")
        connection.execute("CREATE OR REPLACE TABLE batches AS SELECT * FROM batches")
        connection.execute("CREATE OR REPLACE TABLE clock AS SELECT * FROM clock")
        if self.decode_inputs is not None:
            connection.register("decoded inputs", self.decode_inputs(records, schemas))
        _run(connection, _HERE / "common.sql")
        _run(connection, _HERE / f"{self.job}.sql")
        there, processed, read = connection.sql(
            "SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM processed), "
            "(SELECT coalesce(sum(to_offset - from_offset), 0) FROM batches)"
        ).fetchall()[0]
        if processed < there:
            raise ValueError(f"the stream has read {processed} of {there} input records: wait until it has caught up")
        if there < read:
            raise ValueError(f"the stream has read {read} input records, of which {there} are left in Kafka")

    def put_beside(
        self,
        connection: duckdb.DuckDBPyConnection,
        outputs: pa.Table,
        tables: dict[str, Any],
        schemas: Schemas = OF_THIS_PROCESS,
    ) -> None:
        """Makes the views "found <result>" in the connection.

        Args:
            connection: the connection that gets the views.
            outputs: all records of the output topics, from `records_table`.
            tables: name -> content of a Delta table.
            schemas: the registry, if records name schemas.
        """
        connection.execute("CREATE OR REPLACE TABLE outputs AS SELECT * FROM outputs")
        if self.decode_outputs is not None:
            connection.register("decoded outputs", self.decode_outputs(outputs, schemas))
        for name, table in tables.items():
            connection.register(f"table {name}", table)
        _run(connection, _HERE / f"{self.job}_found.sql")

    def compare_all(self, connection: duckdb.DuckDBPyConnection) -> list[Comparison]:
        """Compares every result with its recomputation."""
        return [self.compare(connection, name) for name in self.results]

    def compare(self, connection: duckdb.DuckDBPyConnection, name: str, show: int = 5) -> Comparison:
        """Counts the rows of one result that are not in both "expected <name>" and "found <name>"."""
        columns = connection.sql(f'SELECT * FROM "expected {name}" LIMIT 0').columns
        chosen = ", ".join(f'"{column}"' for column in columns)
        for side in ("expected", "found"):
            connection.execute(f'CREATE OR REPLACE TEMP TABLE {side} AS SELECT {chosen} FROM "{side} {name}"')
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE differences AS "
            "SELECT '-' AS sign, * FROM (FROM expected EXCEPT ALL FROM found) UNION ALL "
            "SELECT '+' AS sign, * FROM (FROM found EXCEPT ALL FROM expected)"
        )
        counts = [
            connection.sql(f"SELECT count(*) FROM {side}").fetchall()[0][0]
            for side in ("expected", "found", "differences")
        ]
        rows = connection.sql(f"SELECT * FROM differences ORDER BY {chosen}, sign LIMIT {show}").fetchall()
        return Comparison(
            name=name,
            kind="topic" if name in self.topics else "table",
            expected=counts[0],
            found=counts[1],
            differences=tuple(
                f"{sign} " + ", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=True)) for sign, *row in rows
            ),
            different=counts[2],
        )


def read_topics(bootstrap: Kafka, topics: Sequence[str]) -> tuple[pa.Table, int]:
    """All committed records of the topics, and the number of partitions of the first one."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        client_settings(
            bootstrap,
            {
                "group.id": "deltaworks-recomputation",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
        )
    )
    rows: list[tuple[Any, ...]] = []
    try:
        known = consumer.list_topics(timeout=10).topics
        unread = {(topic, partition) for topic in topics for partition in known[topic].partitions}
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in sorted(unread)])
        while unread:
            for message in consumer.consume(1_000, timeout=0.1):
                at = (str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    rows.append(
                        (
                            *at,
                            message.offset(),
                            message.timestamp()[1],
                            message.key(),
                            message.value(),
                            message.headers() or [],
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(at)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return records_table(rows), len(known[topics[0]].partitions)


def read_batches(folder: Path) -> tuple[pa.Table, pa.Table]:
    """The offsets and the time of every batch; a batch that ran twice is listed twice, with equal offsets."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    batches = {line["batch"]: line for line in lines}
    return (
        batches_table(_flat({number: line["offsets"] for number, line in batches.items()})),
        clock_table((number, line["wall_clock_ms"], line["tick"]) for number, line in batches.items()),
    )


def _flat(batches: dict[int, dict[str, dict[str, list[int]]]]) -> Iterator[tuple[Any, ...]]:
    for batch, offsets in batches.items():
        for topic, partitions in offsets.items():
            for partition, (start, stop) in partitions.items():
                yield batch, topic, int(partition), start, stop


def _read_table(path: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_table()


def records_table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Records as columns: topic, partition, offset, timestamp in ms, key, value, headers as (name, value)."""
    return _columns(rows, _RECORD)


def batches_table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """The offsets that the stream read: batch, topic, partition, first offset, next offset."""
    return _columns(rows, _BATCH)


def clock_table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """The times of batches: batch, wall clock in ms, and whether tasks that depend on the clock ran without records."""
    return _columns(rows, _CLOCK)


def _columns(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def _run(connection: duckdb.DuckDBPyConnection, script: Path) -> None:
    for statement in duckdb.extract_statements(script.read_text()):
        connection.execute(statement)
