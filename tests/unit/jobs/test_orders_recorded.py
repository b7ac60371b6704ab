"""The kernel on four tasks per stage, for random cuts into micro-batches, against the recomputation in SQL."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from deltaworks.kernel.errors import dead_letter_record
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing.recorded import MicroBatch, Recording, TableRow, run_recorded
from jobs.orders import EnrichedOrder, User, pipeline
from jobs.recomputed.orders import recomputation
from jobs.recomputed.results import records_table
from jobs.sample_data.orders import records
from tests.unit.jobs.orders_model import Row
from tests.unit.jobs.test_orders_check import Cuts, random_cuts, recomputed, rows_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONEY = pa.decimal128(38, 18)


def micro_batches(rows: Sequence[Row], cuts: Cuts) -> Iterator[MicroBatch]:
    """What a stream would have recorded."""
    by_partition: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        by_partition[row.topic, row.partition].append(row)
    for batch in range(len(next(iter(cuts.values()))) - 1):
        parts = {at: part[cuts[at][batch] : cuts[at][batch + 1]] for at, part in by_partition.items()}
        yield MicroBatch(batch, tuple(_record_batch(at, part) for at, part in parts.items() if part))


def _record_batch(at: tuple[str, int], rows: Sequence[Row]) -> RecordBatch:
    return RecordBatch(
        *at,
        [row.offset for row in rows],
        [row.timestamp_ms for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
    )


def put_beside(connection: duckdb.DuckDBPyConnection, recording: Recording) -> None:
    """What the tasks produced, as the tables and topics would hold it."""
    tables = {
        "enriched_orders": _appended(recording, "enriched_orders"),
        "order_counts": _windows(recording, "order_counts", pa.int64()),
        "user_revenue": _windows(recording, "user_revenue", MONEY),
        "user_sessions": _windows(recording, "user_sessions", pa.int64()),
        "dead_letters": _dead_letters(recording),
    }
    recomputation.put_beside(connection, _outputs(recording), tables | _users(connection))


def _appended(recording: Recording, table: str) -> pa.Table:
    rows = [row for output in recording.tasks.values() for row in output.rows.get(table, ())]
    names = EnrichedOrder.__struct_fields__
    columns: dict[str, Any] = {name: [getattr(row.value, name) for row in rows] for name in names}
    columns["amount"] = pa.array(columns["amount"], MONEY)
    sources = [row.source for row in rows if row.source is not None]
    return pa.table(
        columns
        | {
            "key": [row.key for row in rows],
            "timestamp": [_instant(row.timestamp_ms) for row in rows],
            "source_topic": [source.topic for source in sources],
            "source_partition": pa.array([source.partition for source in sources], pa.int32()),
            "source_offset": [source.offset for source in sources],
        }
    )


def _windows(recording: Recording, table: str, value: pa.DataType) -> pa.Table:
    windows: dict[tuple[str, int, int], tuple[TableRow, bool]] = {}
    for output in recording.tasks.values():
        rows = output.rows.get(table, [])
        closed_before_ms = max((row.end_ms for row in rows if row.kind == "close"), default=0)
        for row in rows:
            if row.kind == "window":
                windows[row.key, row.start_ms, row.end_ms] = (row, row.end_ms < closed_before_ms)
    kept = {window: (row, final) for window, (row, final) in windows.items() if row.value is not None}
    return pa.table(
        {
            "key": [key for key, _, _ in kept],
            "window_start": [_instant(start_ms) for _, start_ms, _ in kept],
            "window_end": [_instant(end_ms) for _, _, end_ms in kept],
            "value": pa.array([row.value for row, _ in kept.values()], value),
            "timestamp": [_instant(row.timestamp_ms) for row, _ in kept.values()],
            "is_final": [final for _, final in kept.values()],
            "window_date": [_instant(start_ms).date() for _, start_ms, _ in kept],
        }
    )


def _dead_letters(recording: Recording) -> pa.Table:
    letters = [letter for output in recording.tasks.values() for letter in output.dead_letters]
    return pa.table(
        {
            "key": pa.array([letter.key for letter in letters], pa.binary()),
            "value": pa.array([letter.value for letter in letters], pa.binary()),
            "topic": [letter.source.topic for letter in letters],
            "partition": pa.array([letter.source.partition for letter in letters], pa.int32()),
            "offset": [letter.source.offset for letter in letters],
            "timestamp": [_instant(letter.timestamp_ms) for letter in letters],
            "error_class": [letter.error_class for letter in letters],
            "operator": [letter.operator for letter in letters],
        }
    )


def _users(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Micro-batches are no part of what a task hands over: its changelog is compared in another way."""
    return {
        name: connection.sql(f'SELECT * FROM "expected {name}"').to_arrow_table()
        for name in ("users", "users_changelog")
    }


def _outputs(recording: Recording) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    for topic in ("enriched-orders", "premium-orders", "standard-orders"):
        for offset, record in enumerate(recording.topic(topic)):
            partition = partition_of(record.key or b"", 4)
            rows.append((topic, partition, offset, record.timestamp_ms, record.key, record.value, []))
    for output in recording.tasks.values():
        for letter in output.dead_letters:
            key, value, headers = dead_letter_record(letter)
            rows.append(("orders-dead-letters", 0, 0, letter.timestamp_ms, key, value, list(headers)))
    return records_table(rows)


def _instant(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)


@pytest.mark.parametrize(("seed", "batches"), [(1, 1), (2, 3), (3, 12), (4, 40)])
def test_every_result_is_what_the_recomputation_says_for_any_cut_and_any_restart(seed: int, batches: int) -> None:
    rng = random.Random(seed)
    rows = rows_of(records(2_000, seed))
    cuts = random_cuts(rows, batches, rng)
    connection = recomputed(rows, cuts)

    recording = run_recorded(
        pipeline.plan(),
        {"raw-orders": 4, "user-data": 4},
        micro_batches(rows, cuts),
        errors=pipeline.errors,
        restarts=lambda batch, task: rng.random() < 0.3,
    )
    put_beside(connection, recording)

    comparisons = recomputation.compare_all(connection)
    assert [(c.name, c.differences) for c in comparisons if not c.equal] == []
    changes = [row for output in recording.tasks.values() for row in output.rows.get("users", ())]
    assert sorted((_change(row) for row in changes), key=_sortable) == sorted(
        connection.sql('SELECT key, name, source_partition, source_offset FROM "expected users_changelog"').fetchall(),
        key=_sortable,
    )


def _change(row: TableRow) -> tuple[Any, ...]:
    assert row.source is not None
    name = row.value.name if isinstance(row.value, User) else None
    return row.key, name, row.source.partition, row.source.offset


def _sortable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], *row[2:]
