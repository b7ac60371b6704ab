"""Recomputes every result of `jobs/orders.py` from its input topics and compares; shares no code with the pipeline.

The recomputation is `orders_check.sql`, plain DuckDB. This module only reads topics, tables and the stream's
record of its batches (the order decides which user an order meets and which record is late), and compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

INPUTS = ("raw-orders", "user-data")
TOPICS = ("enriched-orders", "premium-orders", "standard-orders", "orders-dead-letters")
TABLES = (
    "enriched_orders",
    "order_counts",
    "user_revenue",
    "user_sessions",
    "users",
    "users_changelog",
    "dead_letters",
)
RESULTS = (*TABLES, "users = users_changelog", *TOPICS)
_EXPECTED, _FOUND = (Path(__file__).with_name(f"orders_{name}.sql") for name in ("check", "found"))
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


@dataclass(frozen=True)
class Comparison:
    """One table or topic against its recomputation."""

    name: str
    kind: str
    """`table` or `topic`."""
    expected: int
    """Rows."""
    found: int
    differences: tuple[str, ...]
    """The first rows that are missing (-) or should not be there (+)."""
    different: int
    """How many rows are missing or should not be there."""

    @property
    def equal(self) -> bool:
        """Not a row more, less or other."""
        return self.different == 0


def check(bootstrap: str, tables: Path, batches: Path) -> list[Comparison]:
    """Reads everything and compares.

    Args:
        bootstrap: address of Kafka.
        tables: folder with the Delta tables.
        batches: folder with the stream's record of its batches.

    Raises:
        ValueError: the stream has not read everything, or records that it has read are gone.
    """
    connection = duckdb.connect()
    inputs, tasks = read_topics(bootstrap, INPUTS)
    recompute(connection, inputs, read_batches(batches), tasks)
    outputs, _ = read_topics(bootstrap, TOPICS)
    found(connection, outputs, {name: _read_table(tables / name) for name in TABLES})
    return [compare(connection, name) for name in RESULTS]


def recompute(connection: duckdb.DuckDBPyConnection, records: pa.Table, batches: pa.Table, tasks: int = 4) -> None:
    """Runs `orders_check.sql` on the input records; leaves its views in the connection.

    Args:
        connection: where to.
        records: both input topics, whole.
        batches: the stream's record of its batches.
        tasks: partitions of the input topics, and so tasks before and after the re-keying.
    """
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET VARIABLE tasks = ?", [tasks])
    connection.execute("CREATE OR REPLACE TABLE records AS SELECT * FROM records")
    connection.execute("CREATE OR REPLACE TABLE batches AS SELECT * FROM batches")
    _run(connection, _EXPECTED)
    there, processed, read = connection.sql(
        "SELECT (SELECT count(*) FROM records), (SELECT count(*) FROM processed), "
        "(SELECT coalesce(sum(to_offset - from_offset), 0) FROM batches)"
    ).fetchall()[0]
    if processed < there:
        raise ValueError(f"the stream has read {processed} of {there} input records: wait until it has caught up")
    if there < read:
        raise ValueError(f"the stream has read {read} input records, of which {there} are left in Kafka")


def found(connection: duckdb.DuckDBPyConnection, outputs: pa.Table, tables: dict[str, Any]) -> None:
    """Puts the results beside the recomputation (`orders_found.sql`)."""
    connection.execute("CREATE OR REPLACE TABLE outputs AS SELECT * FROM outputs")
    for name, table in tables.items():
        connection.register(f"table {name}", table)
    _run(connection, _FOUND)


def compare(connection: duckdb.DuckDBPyConnection, name: str, show: int = 5) -> Comparison:
    """Counts the rows of one result that are not in both `expected <name>` and `found <name>`."""
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
        connection.sql(f"SELECT count(*) FROM {side}").fetchall()[0][0] for side in ("expected", "found", "differences")
    ]
    rows = connection.sql(f"SELECT * FROM differences ORDER BY {chosen}, sign LIMIT {show}").fetchall()
    return Comparison(
        name=name,
        kind="topic" if name in TOPICS else "table",
        expected=counts[0],
        found=counts[1],
        differences=tuple(
            f"{sign} " + ", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=True)) for sign, *row in rows
        ),
        different=counts[2],
    )


def read_topics(bootstrap: str, topics: Sequence[str]) -> tuple[pa.Table, int]:
    """All committed records of the topics, and how many partitions the first one has."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "orders-check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
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


def read_batches(folder: Path) -> pa.Table:
    """What the stream read, when; a batch that ran twice is listed twice with the same offsets."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return batches_table(_flat({line["batch"]: line["offsets"] for line in lines}))


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
    """What the stream read, when: batch, topic, partition, first offset, next offset."""
    return _columns(rows, _BATCH)


def _columns(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def _run(connection: duckdb.DuckDBPyConnection, script: Path) -> None:
    for statement in duckdb.extract_statements(script.read_text()):
        connection.execute(statement)
