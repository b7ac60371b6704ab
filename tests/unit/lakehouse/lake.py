"""A small deterministic stream into every kind of table, and what the tables must hold afterwards."""

from __future__ import annotations

import random
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from deltaworks.kernel.records import Coordinates, DeadLetter
from deltaworks.lakehouse.catalog import add_views
from deltaworks.lakehouse.committer import TableCommit, TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

QUERY = "0b7f6a0e-query"
TASKS = 2
PAGE_ROWS = 16
MINUTE_MS = 60_000
NOON_MS = 1_790_000_000_000 // MINUTE_MS * MINUTE_MS


class User(msgspec.Struct, frozen=True):
    name: str
    balance: Decimal


ORDERS = DeltaSink(name="orders-sink", table="orders", kind=TableKind.APPEND, key=str, value=User)
USERS = DeltaSink(name="users-sink", table="users", kind=TableKind.CHANGELOG, key=str, value=User)
COUNTS = DeltaSink(name="counts-sink", table="counts", kind=TableKind.WINDOWED, key=str, value=int)
SINKS = (ORDERS, USERS, COUNTS)
DEAD = "dead_letters"

Window = tuple[str, int, int]


class Expected:
    """What the tables must hold after a number of batches."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, int]] = []
        self.users: dict[str, str] = {}
        self.changes = 0
        self.counts: dict[Window, int] = {}
        self.closed_ms = [-1] * TASKS
        self.letters = 0


def open_tables(root: Path, *, query: str = QUERY, generation: int = 1) -> TableCommitter:
    """What a driver does at its start."""
    committer = TableCommitter(root, "shop", query, SINKS, DEAD)
    committer.open(generation)
    return committer


def task_tables(root: Path) -> list[TaskTables]:
    """The tasks' side."""
    return [TaskTables(root, SINKS, DEAD, stage=0, task=task, page_rows=PAGE_ROWS) for task in range(TASKS)]


def write_batch(tables: list[TaskTables], batch_id: int, expected: Expected) -> list[TableWrite]:
    """Runs batch `batch_id`, the same rows each time, on top of what `expected` holds; notes them there."""
    writes: list[TableWrite] = []
    for task, task_table in enumerate(tables):
        choose = random.Random(f"{batch_id}/{task}")
        task_table.begin(batch_id)
        now_ms = NOON_MS + batch_id * 20 * MINUTE_MS
        for number in range(choose.randrange(30)):
            _row(task_table, choose, task, now_ms, batch_id * 1000 + number, expected)
        bound = max(expected.closed_ms[task], now_ms - choose.randrange(60, 180) * MINUTE_MS)
        task_table.rows("counts").close_windows(bound)
        expected.closed_ms[task] = bound
        writes += task_table.finish()
    return writes


def _row(tables: TaskTables, choose: random.Random, task: int, now_ms: int, offset: int, expected: Expected) -> None:
    source = Coordinates("raw", task, offset)
    key = f"user-{choose.randrange(12)}-{task}"
    match choose.randrange(4):
        case 0:
            tables.rows("orders").add((key, User(str(offset), Decimal("0.10")), now_ms, source))
            expected.orders.append((key, offset))
        case 1:
            gone = choose.random() < 0.25
            tables.rows("users").add((key, None if gone else User(str(offset), Decimal(1)), now_ms, source))
            expected.users.pop(key, None)
            expected.changes += 1
            if not gone:
                expected.users[key] = str(offset)
        case 2:
            start = (now_ms - choose.randrange(200) * MINUTE_MS) // MINUTE_MS * MINUTE_MS
            end = start + choose.choice([1, 5]) * MINUTE_MS
            if end >= expected.closed_ms[task]:
                gone = (key, start, end) in expected.counts and choose.random() < 0.3
                tables.rows("counts").add((key, None if gone else offset, now_ms, start, end))
                expected.counts.pop((key, start, end), None)
                if not gone:
                    expected.counts[key, start, end] = offset
        case _:
            letter = DeadLetter(b"k", b"{", (("h", b"1"), ("h", None)), now_ms, source, "E", "bad", "op", "at x")
            tables.dead_letter(letter)
            expected.letters += 1


def run(root: Path, batches: int) -> tuple[TableCommitter, Expected]:
    """Runs the stream without trouble."""
    committer, tables, expected = open_tables(root), task_tables(root), Expected()
    for batch_id in range(batches):
        committer.commit(batch_id, write_batch(tables, batch_id, expected))
        committer.refresh_snapshots()
    return committer, expected


def sweep(committer: TableCommitter) -> None:
    """Lets a driver that has just started delete what it finds to be unneeded."""
    for _ in range(2):
        for table in committer.tables.values():
            table.housekeeping.tidy()
        committer.settle()


def check(root: Path, expected: Expected) -> None:
    """Reads every table as an analyst would and compares it with what it must hold."""
    with opened(root) as connection:
        orders = query(connection, "select key, source_offset from orders")
        assert sorted(orders) == sorted(expected.orders)
        assert query(connection, "select count(*) from users_changelog") == [(expected.changes,)]
        assert dict(query(connection, "select key, name from users")) == expected.users
        assert query(connection, f"select count(*) from {DEAD}") == [(expected.letters,)]
        windows = query(
            connection,
            """select key, epoch_ms(window_start), epoch_ms(window_end), value, is_final,
                      window_date = window_start::date
               from counts""",
        )
    counts = {(key, start, end): value for key, start, end, value, _, _ in windows}
    assert len(counts) == len(windows), "a window has two rows"
    assert counts == expected.counts
    for key, _, end, _, is_final, date_is_right in windows:
        assert date_is_right
        assert is_final == (end < expected.closed_ms[int(key[-1])])


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all tests of a process: a new one takes longer than most of what they ask."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    return database


def opened(root: Path) -> duckdb.DuckDBPyConnection:
    """Like `duckdb_connection`, whose views are those of one connection, too."""
    connection = _database().cursor()
    add_views(connection, root)
    return connection


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return connection.execute(sql).fetchall()


def skipped(commits: list[TableCommit]) -> set[str]:
    """Tables whose commit was recognised as done."""
    return {commit.table for commit in commits if commit.skipped}
