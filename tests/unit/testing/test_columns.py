"""Rows of tables in a test as column -> cell: what readers of the Delta table find."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from deltaworks import Plan, StreamsBuilder, TimeWindows
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.testing import AppendTable, KeyedTable, TopologyTestDriver, WindowTable

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SOURCE = {"source_topic": "orders", "source_partition": 0}


class Item(msgspec.Struct, frozen=True):
    name: str
    count: int


class Order(msgspec.Struct, frozen=True):
    amount: Decimal
    items: list[Item] = []
    timestamp: str = "text"


def plan() -> Plan:
    builder = StreamsBuilder("shop")
    orders = builder.stream("orders", key=str, value=Order)
    orders.to_delta("orders")
    orders.to_table(store="last").to_delta("last")
    orders.group_by_key().windowed_by(TimeWindows(size=HOUR, grace=timedelta(0))).count(store="hours").to_delta("hours")
    return builder.build()


def driver() -> TopologyTestDriver:
    shop = TopologyTestDriver(plan())
    orders = shop.create_input_topic("orders")
    orders.pipe_input("ann", Order(Decimal("1.5"), [Item("pen", 2)]), at=NOON)
    orders.pipe_input("bob", Order(Decimal(2)), at=NOON + HOUR)
    orders.pipe_input("ann", None, at=NOON + HOUR)
    orders.pipe_input("bob", Order(Decimal(3)), at=NOON + 2 * HOUR)
    return shop


def test_a_stream_is_one_dict_per_record() -> None:
    first = driver().table("orders").to_dicts()[0]

    assert first == {
        "key": "ann",
        "amount": Decimal("1.5"),
        "items": [{"name": "pen", "count": 2}],
        "value_timestamp": "text",
        "timestamp": NOON,
        **SOURCE,
        "source_offset": 0,
    }
    assert list(first)[:2] == ["key", "amount"]


def test_a_table_is_one_dict_per_key_and_one_per_change() -> None:
    last = driver().table("last")

    assert last.to_dicts("key", "amount", "timestamp", "source_offset") == [
        {"key": "bob", "amount": Decimal(3), "timestamp": NOON + 2 * HOUR, "source_offset": 3}
    ]
    assert last.changes_to_dicts("op", "key", "amount") == [
        {"op": "upsert", "key": "ann", "amount": Decimal("1.5")},
        {"op": "upsert", "key": "bob", "amount": Decimal(2)},
        {"op": "delete", "key": "ann", "amount": None},
        {"op": "upsert", "key": "bob", "amount": Decimal(3)},
    ]


def test_a_windowed_table_is_one_dict_per_window() -> None:
    assert driver().table("hours").to_dicts()[0] == {
        "key": "ann",
        "window_start": NOON,
        "window_end": NOON + HOUR,
        "value": 1,
        "timestamp": NOON,
        "is_final": True,
        "window_date": date(2026, 1, 31),
    }
    assert driver().table("hours").to_dicts("window_start", "is_final")[-1] == {
        "window_start": NOON + 2 * HOUR,
        "is_final": False,
    }


def test_columns_that_are_asked_for_come_in_that_order() -> None:
    assert list(driver().table("hours").to_dicts("value", "key")[0]) == ["value", "key"]


def test_a_column_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(KeyError, match="no column 'total'; it has: key, amount, items, value_timestamp, timestamp"):
        driver().table("orders").to_dicts("key", "total")


def test_a_table_that_no_topology_writes_has_no_columns() -> None:
    with pytest.raises(ValueError, match=r"has no columns; driver.table\(...\) returns one that has"):
        KeyedTable({"a": 1}).to_dicts()


def test_two_tables_with_the_same_rows_are_equal_whatever_topology_writes_them() -> None:
    table = driver().table("last")

    assert table == KeyedTable(table.rows, table.changes)


def rows_of(table: AppendTable | KeyedTable | WindowTable) -> list[tuple[Any, ...]]:
    """The rows as a task hands them to a Delta table."""
    match table:
        case AppendTable(rows=rows) | KeyedTable(changes=rows):
            return [(row.key, row.value, row.timestamp_ms, row.source) for row in rows]
        case WindowTable(rows=windows, timestamps_ms=times):
            return [(each.key, value, times[each], each.start_ms, each.end_ms) for each, value in windows.items()]


@pytest.mark.parametrize("name", ["orders", "last", "hours"])
def test_the_dicts_are_what_a_task_writes_into_the_delta_table(tmp_path: Path, name: str) -> None:
    table = driver().table(name)
    TableCommitter(tmp_path, "shop", "query", plan().tables, None).open(1)
    tables = TaskTables(tmp_path, plan().tables, None, stage=0, task=0)
    tables.begin(0)
    for row in rows_of(table):
        tables.rows(name).add(row)
    if isinstance(table, WindowTable):
        tables.rows(name).close_windows(table.final_before_ms)

    files = [tmp_path / write.table / file.path for write in tables.finish() for file in write.added]
    written = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    dicts = table.changes_to_dicts() if name == "last" else table.to_dicts()
    assert in_one_order(written, "batch_id") == in_one_order(dicts, "window_date")


def in_one_order(rows: list[dict[str, Any]], without: str) -> list[dict[str, Any]]:
    rows = [{column: cell for column, cell in row.items() if column != without} for row in rows]
    return sorted(rows, key=lambda row: (row["timestamp"], row["key"]))
