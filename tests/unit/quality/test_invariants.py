"""Our invariants hold for what a driver writes, and each finds what it is there for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from deltaworks.lakehouse import layout
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.publish.scope import Scope
from deltaworks.lakehouse.schema import TableSchema, plan_schemas, schemas
from deltaworks.quality import Outcome, Verdict, invariants
from deltaworks.quality.table_snapshots import TableSnapshot, TableSnapshots
from tests.support.data_defects import Defect, defect, planted
from tests.unit.lakehouse.lake import COUNTS, DEAD, ORDERS, QUERY, SINKS, run

SCHEMAS = plan_schemas(SINKS, DEAD)
NAMES = [schema.name for schema in SCHEMAS]
BATCHES = 12
SCOPE = Scope(end_offsets={"raw": {"0": BATCHES * 1000, "1": BATCHES * 1000}}, last_batch=BATCHES - 1)
DAY = timedelta(days=1)
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def not_passed(verdicts: Sequence[Verdict]) -> set[tuple[str, str]]:
    assert [verdict.error for verdict in verdicts if verdict.error] == []
    return {(verdict.table, verdict.expectation) for verdict in verdicts if not verdict.passed}


def all_of(root: Path, scope: Scope = SCOPE) -> list[Verdict]:
    tables = TableSnapshots.below(root, SCHEMAS)
    return [*invariants.alone(tables), *invariants.of_replay(tables, tables, scope, NAMES)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    committer, _ = run(root, BATCHES)
    committer.refresh_snapshots(force=True)
    committer.close()
    return root


@pytest.mark.parametrize("batches", [1, 2, 7, 40])
def test_they_hold_for_what_a_driver_writes(tmp_path: Path, batches: int) -> None:
    committer, _ = run(tmp_path, batches)

    assert not_passed(invariants.alone(TableSnapshots.below(tmp_path, SCHEMAS))) == set()
    committer.refresh_snapshots(force=True)
    ends = dict.fromkeys("01", batches * 1000)
    assert not_passed(all_of(tmp_path, Scope(end_offsets={"raw": ends}, last_batch=batches - 1))) == set()


def test_they_say_what_they_are_about(lake: Path) -> None:
    verdicts = all_of(lake)

    assert [verdict.expects for verdict in verdicts if not verdict.why or verdict.rows is None] == []
    assert {verdict.severity for verdict in verdicts} == {"critical", "warning"}


@pytest.mark.parametrize(
    ("planted_defect", "invariant"),
    [
        (defect("doubled", "counts", "INSERT INTO {} FROM {} LIMIT 1"), "KeysUnique"),
        (defect("doubled", "users", "INSERT INTO {} FROM {} LIMIT 1"), "KeysUnique"),
        (
            defect("day", "counts", "UPDATE {} SET window_date = window_date + 1 WHERE rowid = 3"),
            "RowsInTheirPartition",
        ),
        (defect("never final", "counts", "UPDATE {} SET is_final = false"), "FinalWindows"),
        (defect("all final", "counts", "UPDATE {} SET is_final = true"), "FinalWindows"),
        (defect("gone", "users", "DELETE FROM {} WHERE key = (SELECT min(key) FROM {})"), "SnapshotIsChangelog"),
        (defect("changed", "users", "UPDATE {} SET balance = balance + 0.01 WHERE rowid = 2"), "SnapshotIsChangelog"),
        (
            defect(
                "deleted",
                *("users_changelog", "UPDATE {} SET op = 'delete', name = NULL, balance = NULL"),
            ),
            "SnapshotIsChangelog",
        ),
        (defect("later", "orders", "UPDATE {} SET source_offset = 12000 WHERE rowid = 2"), "OnlyWhatWasRead"),
        (defect("partition", "orders", "UPDATE {} SET source_partition = 2 WHERE rowid = 2"), "OnlyWhatWasRead"),
        (defect("batch", "users_changelog", "UPDATE {} SET batch_id = 12 WHERE rowid = 2"), "OnlyWhatWasRead"),
        (defect("letter", DEAD, 'UPDATE {} SET "offset" = 99999 WHERE rowid = 2'), "OnlyWhatWasRead"),
        (
            defect(
                "behind",
                *("users_changelog", "INSERT INTO {} SELECT * REPLACE (12 AS batch_id) FROM {} LIMIT 1"),
            ),
            "SnapshotIsCurrent",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.tables[0]}-{value.name}",
)
def test_what_breaks_one_is_found(lake: Path, planted_defect: Defect, invariant: str) -> None:
    with planted(lake, NAMES, planted_defect):
        verdicts = all_of(lake)
    found = [verdict for verdict in verdicts if verdict.expectation == invariant and not verdict.passed]

    assert found, not_passed(verdicts)
    assert all(verdict.blocks and verdict.unexpected and verdict.sample for verdict in found)


def test_a_page_with_windows_that_its_task_has_closed_is_found(lake: Path) -> None:
    log = DeltaLog(lake / "counts")
    log.load()
    app = layout.app_id("shop", "counts", layout.closed_step(0), QUERY)
    before = log.transactions[app]
    log.commit(Commit(transactions={app: 1 << 60}))
    try:
        (verdict,) = [v for v in all_of(lake) if v.expectation == "FinalWindows"]
    finally:
        log.commit(Commit(transactions={app: before}))

    assert verdict.outcome is Outcome.FAILED
    assert {row["task"] for row in verdict.sample} == {0}


def test_a_snapshot_that_lags_is_right_as_of_its_batch_and_too_old_for_a_publish(tmp_path: Path) -> None:
    committer, _ = run(tmp_path, 3)
    committer.refresh_snapshots(force=True)
    committer.close()
    committer, _ = run(tmp_path / "more", BATCHES)
    committer.close()
    old, new = TableSnapshots.below(tmp_path, SCHEMAS), TableSnapshots.below(tmp_path / "more", SCHEMAS)
    mixed = TableSnapshots({**new.by_name, "users": old.by_name["users"]}, ())

    assert not_passed(invariants.alone(mixed)) == set()
    assert not_passed(invariants.of_replay(mixed, mixed, SCOPE, NAMES)) == {("users", "SnapshotIsCurrent")}


def test_days_to_publish_are_complete_and_others_need_not_be(lake: Path) -> None:
    tables = TableSnapshots.below(lake, SCHEMAS)
    noon = tables.by_name["counts"].rows.to_table()["window_start"][0].as_py()
    day_ms = int(noon.timestamp() * 1000) // 86_400_000 * 86_400_000
    scope = msgspec.structs.replace(SCOPE, from_ms=day_ms, to_ms=day_ms + 86_400_000)

    assert not_passed(invariants.of_replay(tables, tables, scope, ["counts"])) == {("counts", "DaysAreComplete")}
    assert not_passed(invariants.of_replay(tables, tables, scope, ["orders"])) == set()
    before = msgspec.structs.replace(SCOPE, to_ms=day_ms - 86_400_000)
    assert not_passed(invariants.of_replay(tables, tables, before, ["counts"])) == set()


# Beside production ---------------------------------------------------------------------------------------------------


def in_memory(schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> TableSnapshots:
    table = pa.Table.from_pylist(list(rows), schema=schema.arrow)
    return TableSnapshots({schema.name: TableSnapshot(schema, pads.dataset(table))}, ())


def order(partition: int, offset: int, *, day: int = 0, key: str | None = None) -> dict[str, Any]:
    return {
        "key": key or f"{partition}-{offset % 50}",
        "name": "a",
        "balance": None,
        "timestamp": BEGIN + day * DAY,
        "source_topic": "raw",
        "source_partition": partition,
        "source_offset": offset,
    }


def beside(schema: TableSchema, staging: list[Any], production: list[Any], scope: Scope = SCOPE) -> list[Verdict]:
    new, old = in_memory(schema, staging), in_memory(schema, production)
    return invariants.of_replay(new, old, scope, [schema.name])


def per_day(*counts: int) -> list[dict[str, Any]]:
    return [order(n % 2, n, day=day) for day, count in enumerate(counts) for n in range(count)]


(ALL_ORDERS,), (ALL_COUNTS,) = schemas(ORDERS), schemas(COUNTS)


def test_a_partition_that_fell_silent_blocks() -> None:
    production = [order(partition, offset) for partition in range(2) for offset in range(200)]
    staging = [row for row in production if row["source_partition"] == 0]

    (verdict,) = [v for v in beside(ALL_ORDERS, staging, production) if not v.passed]

    assert verdict.expectation == "EveryPartition" and verdict.blocks
    assert [(row["source_partition"], row["in_production"], row["in_replay"]) for row in verdict.sample] == [
        (1, 200, 0)
    ]


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(lambda row: row["source_offset"] < 5, id="nearly all were wrong, everywhere"),
        pytest.param(lambda row: row["source_partition"] == 0 and row["source_offset"] < 5, id="few are left of any"),
        pytest.param(lambda row: row["source_partition"] == 0 or row["source_offset"] == 7, id="one is left"),
    ],
)
def test_a_correction_that_removes_rows_is_not_forbidden(kept: Any) -> None:
    production = [order(partition, offset) for partition in range(2) for offset in range(200)]

    verdicts = beside(ALL_ORDERS, [row for row in production if kept(row)], production)

    assert [verdict.expects for verdict in verdicts if verdict.blocks] == []


def test_a_partition_of_few_keys_may_fall_silent() -> None:
    production = [order(p, offset, key="robot" if p else None) for p in range(2) for offset in range(200)]

    verdicts = beside(ALL_ORDERS, [row for row in production if row["key"] != "robot"], production)

    assert [verdict.expects for verdict in verdicts if verdict.blocks] == []


@pytest.mark.parametrize(
    ("counts", "days"),
    [
        ((50, 300, 310, 290, 300, 20), []),
        ((50, 300, 310, 290, 99, 20), [4]),
        ((50, 300, 310, 290, 901, 20), [4]),
        ((50, 300, 310, 290, 0, 20), [4]),
        ((50, 300, 310, 0, 310, 20), []),  # the day after too few days
        ((50, 3, 3, 3, 30, 20), []),  # few rows vary
        ((50, 300, 310, 290, 300, 20, 0), []),  # the newest day is still filling
    ],
)
def test_a_day_with_far_more_or_fewer_rows_is_shown_and_does_not_block(counts: Sequence[int], days: list[int]) -> None:
    (verdict,) = [v for v in beside(ALL_ORDERS, per_day(*counts), per_day(1)) if v.expectation == "Volume"]

    assert [row["day"] for row in verdict.sample] == [(BEGIN + day * DAY).date() for day in days]
    assert verdict.passed is not bool(days)
    assert not verdict.blocks


def test_the_days_before_are_those_of_production_where_they_stay() -> None:
    day_ms = int((BEGIN + 4 * DAY).timestamp() * 1000)
    scope = msgspec.structs.replace(SCOPE, from_ms=day_ms, to_ms=day_ms + 86_400_000)
    staging, production = per_day(0, 0, 0, 0, 20, 0), per_day(300, 300, 300, 300, 300, 300)

    (verdict,) = [v for v in beside(ALL_ORDERS, staging, production, scope) if v.expectation == "Volume"]

    assert [(row["rows"], row["usual"]) for row in verdict.sample] == [(20, 300)]


def count(day: int, value: int, *, is_final: bool = True) -> dict[str, Any]:
    start = BEGIN + day * DAY
    return {
        "key": "a",
        "window_start": start,
        "window_end": start + timedelta(hours=1),
        "value": value,
        "timestamp": start,
        "is_final": is_final,
        "window_date": start.date(),
    }


def test_days_that_would_change_but_are_not_published_are_shown() -> None:
    begin_ms = int((BEGIN + DAY).timestamp() * 1000)
    scope = msgspec.structs.replace(SCOPE, from_ms=begin_ms, to_ms=begin_ms + 86_400_000)
    production = [count(0, 1), count(1, 1), count(2, 1), count(3, 1), count(4, 1, is_final=False)]
    staging = [count(0, 1), count(1, 2), count(2, 2), count(4, 2, is_final=False)]

    verdicts = [v for v in beside(ALL_COUNTS, staging, production, scope) if not v.passed]

    assert [(v.expectation, v.blocks) for v in verdicts] == [("OtherDays", False)]
    assert [row["window_date"] for row in verdicts[0].sample] == [(BEGIN + 2 * DAY).date()]


def test_sql_that_fails_is_an_error_and_blocks(lake: Path) -> None:
    tables = TableSnapshots.below(lake, SCHEMAS)
    users = tables.by_name["users"]
    broken = replace(users, schema=replace(users.schema, key=()))

    verdicts = invariants.alone(TableSnapshots({**tables.by_name, "users": broken}, ()))

    assert [v.blocks for v in verdicts if v.outcome is Outcome.ERROR] == [True, True]
