"""The scope of a replay: SQL and Arrow agree with the rule in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from deltaworks.lakehouse.layout import page_path, part_name
from deltaworks.lakehouse.publish.scope import Scope, open_days
from deltaworks.lakehouse.schema import DEAD_LETTER, Role, TableSchema, dead_letter_schema, schemas
from deltaworks.topology.columns import LAST_MS
from tests.unit.lakehouse.lake import COUNTS, ORDERS, USERS

DAY_MS = 86_400_000
ENDS = {"raw": {"0": 40, "1": 0}, "it's": {"0": 7}}
LAST_BATCH = 5
SCOPES = [
    Scope(end_offsets=ENDS, last_batch=LAST_BATCH),
    Scope(end_offsets=ENDS, last_batch=LAST_BATCH, from_ms=2 * DAY_MS, to_ms=4 * DAY_MS),
    Scope(end_offsets=ENDS, last_batch=LAST_BATCH, from_ms=3 * DAY_MS, to_ms=LAST_MS + 1),
    Scope(end_offsets={}, last_batch=-1, to_ms=3 * DAY_MS),
]
TABLES = [schemas(ORDERS)[0], *schemas(USERS), schemas(COUNTS)[0], dead_letter_schema("letters")]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("schema", TABLES, ids=lambda schema: schema.name)
def test_sql_and_arrow_choose_the_same_rows_as_the_rule(schema: TableSchema, scope: Scope) -> None:
    choose = random.Random(f"{schema.name}/{SCOPES.index(scope)}")
    rows = [_row(choose) for _ in range(500)]
    wanted = [number for number, row in enumerate(rows) if _RULES[schema.role](scope, row)]
    table = _table(schema, rows)

    mask = scope.mask(schema, table)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.register("rows", table.append_column("number", pa.array(range(len(rows)))))
        chosen = connection.sql(f"SELECT number FROM rows WHERE {scope.condition(schema)} ORDER BY number").fetchall()

    assert mask.null_count == 0
    assert [number for number, held in enumerate(mask.to_pylist()) if held] == wanted
    assert [number for (number,) in chosen] == wanted


def test_a_row_that_no_record_has_caused_is_not_replaced() -> None:
    scope = Scope(end_offsets={"raw": {"0": 10}}, last_batch=5)
    row = {"topic": "", "partition": -1, "offset": -1, "time_ms": 0, "batch": 0}

    assert scope.mask(schemas(ORDERS)[0], _table(schemas(ORDERS)[0], [row])).to_pylist() == [False]


def test_days_are_those_of_the_partitions() -> None:
    scope = Scope(end_offsets={}, last_batch=0, from_ms=0, to_ms=2 * DAY_MS)

    assert scope.days == ("1970-01-01", "1970-01-03")
    assert [scope.holds_day(day) for day in ("1970-01-01", "1970-01-02", "1970-01-03")] == [True, True, False]
    assert Scope(end_offsets={}, last_batch=0).holds_day("2026-01-01")


def test_a_day_is_open_as_long_as_it_has_a_page() -> None:
    page = page_path("2026-01-02", 0, 0, 0, 0, 1, 3, "0" * 8)
    final = "window_date=2026-01-01/" + part_name("final", 3, 0, "0" * 8)

    assert open_days([page, final]) == {"2026-01-02"}


def _row(choose: random.Random) -> dict[str, Any]:
    topic = choose.choice(["raw", "it's", "exchange", ""])
    exchange = choose.randrange(10) << 32 | choose.randrange(3)
    offset = choose.choice(
        [-1, exchange] if topic == "" else [exchange] if topic == "exchange" else [*range(5, 9), *range(38, 43)]
    )
    return {
        "topic": topic,
        "partition": choose.randrange(3),
        "offset": offset,
        "time_ms": choose.choice([0, 2 * DAY_MS - 1, 2 * DAY_MS, 3 * DAY_MS, 4 * DAY_MS - 1, 4 * DAY_MS, LAST_MS]),
        "batch": choose.randrange(10),
    }


def _is_in_time(scope: Scope, row: dict[str, Any]) -> bool:
    above = scope.from_ms is None or row["time_ms"] >= scope.from_ms
    return above and (scope.to_ms is None or row["time_ms"] < scope.to_ms)


def _is_read(scope: Scope, row: dict[str, Any]) -> bool:
    if row["offset"] < 0:
        return False
    if (ends := scope.end_offsets.get(row["topic"])) is not None:
        return bool(row["offset"] < ends.get(str(row["partition"]), 0))
    return bool(row["offset"] >> 32 <= scope.last_batch)


def _is_read_in_time(scope: Scope, row: dict[str, Any]) -> bool:
    return _is_in_time(scope, row) and _is_read(scope, row)


def _is_early(scope: Scope, row: dict[str, Any]) -> bool:
    return bool(row["batch"] <= scope.last_batch)


_RULES: dict[Role, Callable[[Scope, dict[str, Any]], bool]] = {
    Role.APPEND: _is_read_in_time,
    Role.DEAD_LETTERS: _is_read_in_time,
    Role.CHANGELOG: _is_early,
    Role.SNAPSHOT: _is_early,
    Role.WINDOWED: _is_in_time,
}


def _table(schema: TableSchema, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in the table's columns; what the scope does not look at is null."""
    time = pa.array([row["time_ms"] * 1000 for row in rows]).cast(pa.timestamp("us", tz="UTC"))
    letters = schema.rest == DEAD_LETTER
    known = {
        "window_start": time,
        "timestamp": time,
        "batch_id": pa.array([row["batch"] for row in rows]),
        ("topic" if letters else "source_topic"): pa.array([row["topic"] for row in rows], pa.string()),
        ("partition" if letters else "source_partition"): pa.array([row["partition"] for row in rows], pa.int32()),
        ("offset" if letters else "source_offset"): pa.array([row["offset"] for row in rows], pa.int64()),
    }
    columns = [known.get(field.name, pa.nulls(len(rows), field.type)) for field in schema.file]
    return pa.table(columns, schema=schema.file)
