"""Recomputes every result of `jobs/orders.py` from its input topics and compares; shares no code with the pipeline.

The recomputation is `orders_check.sql`, plain DuckDB. This module only reads topics, tables and the stream's
record of its batches (the order decides which user an order meets and which record is late), and compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

_SQL = Path(__file__).with_name("orders_check.sql")
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


def records_table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Records as columns: topic, partition, offset, timestamp in ms, key, value, headers as (name, value)."""
    return _columns(rows, _RECORD)


def batches_table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """What the stream read, when: batch, topic, partition, first offset, next offset."""
    return _columns(rows, _BATCH)


def _columns(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)


def recompute(connection: duckdb.DuckDBPyConnection, records: pa.Table, batches: pa.Table, tasks: int = 4) -> None:
    """Runs `orders_check.sql` on the input records; leaves its views in the connection.

    Args:
        connection: where to.
        records: both input topics, whole.
        batches: the stream's record of its batches.
        tasks: partitions of the input topics, and so tasks before and after the re-keying.
    """
    connection.execute("SET VARIABLE tasks = ?", [tasks])
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE OR REPLACE TABLE records AS SELECT * FROM records")
    connection.execute("CREATE OR REPLACE TABLE batches AS SELECT * FROM batches")
    for statement in duckdb.extract_statements(_SQL.read_text()):
        connection.execute(statement)
