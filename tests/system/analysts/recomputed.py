"""What readers of `orders` have to find as of a batch: everything recomputed from Kafka's records up to its offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.settings import Settings
from jobs.recomputed.orders import recomputation
from jobs.recomputed.results import batches_table, clock_table, read_batches, read_topics, records_table
from tests.system.analysts.readers import Row, Rows, Wanted, counted, kinds


def wanted() -> Wanted:
    """All tables of the job, with the columns that the recomputation has."""
    connection = duckdb.connect()
    recomputation.recompute(connection, records_table([]), batches_table([]), clock_table([]))
    return {
        table: kinds(connection.sql(f'SELECT * FROM "expected {table}" LIMIT 0').to_arrow_table().schema)
        for table in recomputation.tables
    }


class Recomputed:
    """All records that the stream has read, and its record of batches, as they are in the end.

    Args:
        settings: of the stack.
        wanted: tables and columns.
        batches: a folder of this machine with the record of batches; None: that of the home.
    """

    def __init__(self, settings: Settings, wanted: Wanted, batches: Path | None = None) -> None:
        self._wanted = wanted
        self._records, self._tasks = read_topics(settings.cluster, recomputation.inputs)
        self._batches, self._clock = read_batches(batches or settings.pipeline("orders") / "batches")

    def blank(self, unwanted: Callable[[str, int, int, tuple[bytes | None, bytes | None]], bool]) -> None:
        """Takes key and value from records, as if somebody else had sent something that nobody reads.

        Args:
            unwanted: from topic, partition, offset, and key and value, whether to.
        """
        rows = self._records.to_pylist()
        for row in rows:
            if unwanted(row["topic"], row["partition"], row["offset"], (row["key"], row["value"])):
                row["key"] = row["value"] = None
        self._records = pa.Table.from_pylist(rows, self._records.schema)

    def at(self, batch: int) -> Rows:
        """The rows of all tables as of a batch."""
        connection = duckdb.connect()
        known = self._batches.filter(pc.field("batch") <= batch)
        clock = self._clock.filter(pc.field("batch") <= batch)
        recomputation.recompute(connection, self._read_by(known), known, clock, self._tasks)
        found = {}
        for table, columns in self._wanted.items():
            chosen = ", ".join(f'"{name}"' for name in columns)
            rows = connection.execute(f'SELECT {chosen} FROM "expected {table}"').fetchall()
            found[table] = counted(columns.values(), rows)
        return found

    def _read_by(self, batches: pa.Table) -> pa.Table:
        """The records of these batches."""
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, end in zip(
            *(batches[name].to_pylist() for name in ("topic", "partition", "to_offset")), strict=True
        ):
            ends[topic, partition] = max(end, ends.get((topic, partition), 0))
        records = self._records
        there = zip(*(records[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        return records.filter(
            pa.array([offset < ends.get((topic, part), 0) for topic, part, offset in there], pa.bool_())
        )


def disagreeing(rows: Rows, wanted: Wanted) -> Iterator[str]:
    """Where the tables of one answer do not belong together; this needs no recomputation.

    The snapshot of the users is their changelog, reduced to the last row per key; and a count of orders cannot have
    more of them than there are.
    """
    latest: dict[str, dict[str, str]] = {}
    for row in _named(rows["users_changelog"], wanted["users_changelog"]):
        before = latest.get(row["user_id"])
        if before is None or _position(row) > _position(before):
            latest[row["user_id"]] = row
    reduced = {(row["user_id"], row["name"], row["country"]) for row in latest.values() if row["op"] == "upsert"}
    users = {(row["user_id"], row["name"], row["country"]) for row in _named(rows["users"], wanted["users"])}
    yield from (f"users, but not by users_changelog: {row}" for row in sorted(users - reduced))
    yield from (f"by users_changelog, but not in users: {row}" for row in sorted(reduced - users))
    counts = sum(int(row["orders"]) for row in _named(rows["order_counts"], wanted["order_counts"]))
    if counts > (orders := rows["enriched_orders"].total()):
        yield f"the sum of order_counts is {counts}, but enriched_orders has {orders} rows"


def _position(row: dict[str, str]) -> tuple[int, int]:
    return int(row["batch_id"]), int(row["source_offset"])


def _named(rows: Counter[Row], columns: Any) -> Iterator[dict[str, str]]:
    return (dict(zip(columns, row, strict=True)) for row in rows)
