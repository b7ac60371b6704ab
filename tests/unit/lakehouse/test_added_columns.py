"""A type gets a field: every table of it gets a column, rows that are there have null in it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import DecimalDigits, Doc
from deltaworks.errors import FencedError, TableError
from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.lake import NOON_MS, QUERY, opened, query, sweep

TABLES = ("orders", "users_changelog", "users", "counts")
MINUTE_MS = 60_000


class Old(msgspec.Struct, frozen=True):
    name: str


class New(msgspec.Struct, frozen=True):
    price: Annotated[Decimal, DecimalDigits(10, 2), Doc("What it costs.")] = Decimal(0)
    name: str = ""


class Narrow(msgspec.Struct, frozen=True):
    price: Annotated[Decimal, DecimalDigits(10, 2)] = Decimal(0)


class Other(msgspec.Struct, frozen=True):
    name: int


def sinks(kind: Any) -> tuple[DeltaSink, ...]:
    names = (("orders", TableKind.APPEND), ("users", TableKind.CHANGELOG), ("counts", TableKind.WINDOWED))
    return tuple(DeltaSink(name=f"{name}-sink", table=name, kind=role, key=str, value=kind) for name, role in names)


def committer(root: Path, kind: Any, generation: int = 1) -> TableCommitter:
    made = TableCommitter(root, "shop", QUERY, sinks(kind), None)
    made.open(generation)
    return made


@dataclass
class Stream:
    """A stream into the tables of a type, which may change between two batches."""

    root: Path
    orders: dict[int, Any] = field(default_factory=dict)
    users: dict[str, Any] = field(default_factory=dict)
    counts: dict[tuple[str, int], Any] = field(default_factory=dict)
    batch: int = 0

    def run(self, kind: Any, batches: int, **options: Any) -> TableCommitter:
        """Some batches of a driver that begins with these."""
        tables = TaskTables(self.root, sinks(kind), None, stage=0, task=0, page_rows=4)
        made = committer(self.root, kind, **options)
        for _ in range(batches):
            made.commit(self.batch, self._batch(tables, kind))
            made.refresh_snapshots()
            self.batch += 1
        made.refresh_snapshots(force=True)
        return made

    def _batch(self, tables: TaskTables, kind: Any) -> list[Any]:
        tables.begin(self.batch)
        now_ms = NOON_MS + self.batch * MINUTE_MS
        for number in range(6):
            offset = self.batch * 10 + number
            key, source = f"u-{(self.batch * 5 + number) % 17}", Coordinates("raw", 0, offset)
            value = kind(name=str(offset), price=Decimal(offset)) if kind is New else kind(name=str(offset))
            tables.rows("orders").add((key, value, now_ms, source))
            tables.rows("users").add((key, value, now_ms, source))
            start = now_ms - number * MINUTE_MS
            tables.rows("counts").add((key, value, now_ms, start, start + MINUTE_MS))
            self.orders[offset] = self.users[key] = self.counts[key, start] = value
        tables.rows("counts").close_windows(now_ms - 8 * MINUTE_MS)
        return tables.finish()

    def check(self) -> None:
        """Compares all tables with what they must hold, as an analyst reads them."""
        with opened(self.root) as connection:
            orders = query(connection, "SELECT source_offset, name, price FROM orders")
            changes = query(connection, "SELECT source_offset, name, price FROM users_changelog")
            users = query(connection, "SELECT key, name, price FROM users")
            counts = query(connection, "SELECT key, epoch_ms(window_start), name, price FROM counts")
        wanted = {offset: cells(value) for offset, value in self.orders.items()}
        assert {offset: tuple(rest) for offset, *rest in orders} == wanted
        assert {offset: tuple(rest) for offset, *rest in changes} == wanted
        assert {key: tuple(rest) for key, *rest in users} == {key: cells(value) for key, value in self.users.items()}
        assert {(key, at): tuple(rest) for key, at, *rest in counts} == {
            place: cells(value) for place, value in self.counts.items()
        }
        assert len(orders) == len(changes) == len(self.orders) and len(counts) == len(self.counts)


def cells(value: Any) -> tuple[str, Decimal | None]:
    return value.name, getattr(value, "price", None)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_rows_that_are_there_have_null_and_new_ones_the_value(stream: Stream) -> None:
    stream.run(Old, 12)

    made = stream.run(New, 12)
    stream.check()
    sweep(made)

    stream.check()
    stream.run(New, 12)
    stream.check()


def test_the_new_columns_come_in_the_order_of_the_type_with_their_comments(stream: Stream) -> None:
    stream.run(Old, 1)

    stream.run(New, 1)

    for name in TABLES:
        columns = DeltaTable(str(stream.root / name)).schema().fields
        names = [each.name for each in columns]
        assert names.index("price") + 1 == names.index("name"), name
        assert columns[names.index("price")].metadata == {"comment": "What it costs."}
        assert columns[names.index("price")].nullable
        assert log_of(stream, name).added_columns == ("price",)


def log_of(stream: Stream, name: str) -> DeltaLog:
    log = DeltaLog(stream.root / name)
    log.load()
    return log


def test_a_start_with_the_same_type_commits_nothing(stream: Stream) -> None:
    stream.run(Old, 1)
    stream.run(New, 1)
    before = {name: log_of(stream, name).version for name in TABLES}

    committer(stream.root, New)

    assert {name: log_of(stream, name).version for name in TABLES} == before


def test_an_old_version_has_the_old_columns(stream: Stream) -> None:
    stream.run(Old, 3)
    version = log_of(stream, "orders").version

    stream.run(New, 3)

    old = DeltaTable(str(stream.root / "orders"), version=version).to_pyarrow_table()
    assert "price" not in old.column_names and old.num_rows == 18


def test_an_older_driver_that_is_still_there_cannot_write_any_more(stream: Stream) -> None:
    late, tables = stream.run(Old, 1), TaskTables(stream.root, sinks(Old), None, stage=0, task=0, page_rows=4)
    stream.run(New, 1, generation=2)
    before = dict(stream.orders)

    with pytest.raises(FencedError):
        late.commit(stream.batch, stream._batch(tables, Old))

    stream.orders = before
    with opened(stream.root) as connection:
        assert query(connection, "SELECT count(*) FROM orders") == [(len(before),)]


class Key(msgspec.Struct, frozen=True):
    key: str
    region: str = ""


def test_a_key_gets_no_column(stream: Stream) -> None:
    stream.run(Old, 2)
    others = tuple(replace(sink, key=Key) for sink in sinks(New))

    with pytest.raises(TableError, match=r"price: not there -> decimal.*; region: not there -> string"):
        TableCommitter(stream.root, "shop", QUERY, others, None).open(1)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Narrow, {"name": "string -> not there"}),
        (Other, {"name": "string -> long"}),
    ],
)
def test_columns_that_are_gone_or_different_are_refused(stream: Stream, kind: Any, told: Mapping[str, str]) -> None:
    stream.run(Old, 2)

    for _ in range(2):
        with pytest.raises(TableError) as refused:
            committer(stream.root, kind)
        for name, what in told.items():
            assert f"{name}: {what}" in refused.value.message
    assert "a value can get columns, and nothing else can change" in str(refused.value)
    assert all("price" not in DeltaTable(str(stream.root / name)).to_pyarrow_table().column_names for name in TABLES)
    stream.run(Old, 2)
    with opened(stream.root) as connection:
        assert query(connection, "SELECT count(*) FROM orders") == [(len(stream.orders),)]
