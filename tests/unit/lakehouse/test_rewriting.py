"""Rows that are taken out of a table are gone from all of its versions and files; all else stays as it was."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks import faults
from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse import retention, rewriting
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.rewriting import Taken, Unwanted
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.lakehouse.task_tables import TaskTables
from tests.unit.lakehouse.lake import DEAD, NOON_MS, ORDERS, QUERY, SINKS, User, check, sweep
from tests.unit.lakehouse.shop import SHOP, START, Clock, Shop, simulate

SCHEMAS = {schema.name: schema for schema in plan_schemas(SINKS, DEAD)}
GONE = "user-7-1"
Rows = Counter[str]
Seen = dict[tuple[int, str], Rows]
"""Batch of a cut, and table -> its rows."""


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return simulate(monkeypatch)


def theirs(rows: pa.Table) -> pa.Array | None:
    return pc.equal(rows["key"].combine_chunks(), GONE) if pa.types.is_string(rows.schema.field("key").type) else None


UNWANTED = Unwanted(theirs, lambda text: GONE in text)


def take(root: Path, id: str = "e1") -> dict[str, Taken]:
    return {name: rewriting.take(root / name, schema, UNWANTED, id) for name, schema in SCHEMAS.items()}


def seen(shop: Shop, *, without: str | None = None) -> Seen:
    """All that a reader can look at: the tables as of each cut that is kept, by Delta's own rules."""
    known = [*shop.known(), *(pin.cut for pin in retention.pins(shop.root, SHOP))]
    return {(cut.batch_id, name): _rows(shop.root / name, version, without)
            for cut in known for name, version in cut.tables.items()}  # fmt: skip


def _rows(table: Path, version: int, without: str | None) -> Rows:
    rows: list[dict[str, Any]] = dataset(table, DeltaTable(table, version=version)).to_table().to_pylist()
    return Counter(str(row) for row in rows if row["key"] != without)


def holding(root: Path) -> list[Path]:
    """Files that have the key in any form: as text, as a bound, or in a column."""
    return [path for path in sorted(root.rglob("*")) if path.is_file() and GONE in _content(path)]


def _content(path: Path) -> str:
    plain = path.read_bytes().decode("utf-8", "replace")
    return plain + str(pq.ParquetFile(path).read().to_pydict()) if path.suffix == ".parquet" else plain


def several_days(shop: Shop) -> None:
    """Hours and days that outlive the rest, a pin, a restart, a torn version in the trash."""
    shop.run(START + timedelta(hours=3), timedelta(minutes=25))
    retention.pin(shop.root, "audit", SHOP, by="ada")
    shop.run(START + timedelta(hours=16), timedelta(minutes=55))
    shop.committer.close()
    log = DeltaLog(shop.root / "orders")
    log.load()
    torn = shop.root / "orders" / "_delta_log" / f"{log.version + 1:020d}.json"
    torn.write_text(json.dumps({"commitInfo": {"engineInfo": "deltaworks", "for": GONE}}) + '\n{"add": ')
    shop.start()
    shop.batch()
    shop.committer.close()


def test_rows_are_gone_from_all_versions_and_files(tmp_path: Path, time: Clock) -> None:
    shop = Shop(tmp_path, time)
    several_days(shop)
    before, expected = seen(shop), seen(shop, without=GONE)
    assert before != expected and len({batch for batch, _ in before}) > 8 and len(holding(tmp_path)) > 30

    found = {name: rewriting.find(tmp_path / name, UNWANTED) for name in SCHEMAS}
    assert seen(shop) == before, "finding changes nothing"
    taken = take(tmp_path)

    assert seen(shop) == expected
    assert holding(tmp_path) == []
    assert not list(tmp_path.glob("*/_rewritten*"))
    for name in ("orders", "counts", "users", "users_changelog"):
        log = DeltaLog(tmp_path / name)
        log.load()
        assert all(entry.rows for entry in log.files.values()), "a file without rows is part of the table"
        assert log.is_as_left and DeltaTable(tmp_path / name).history(1)[0]["operation"] == "ERASE"
    for name, each in taken.items():
        assert (each.rows, each.older, each.files) == (found[name].rows, found[name].older, found[name].files)
    newest = max(batch for batch, _ in before)
    assert taken["orders"].rows == (before[newest, "orders"] - expected[newest, "orders"]).total() > 0
    assert take(tmp_path) == {name: Taken() for name in SCHEMAS}, "nothing is left"


def test_the_stream_goes_on_with_the_rows_that_are_left(tmp_path: Path, time: Clock) -> None:
    """Pages, snapshots, merges and what is kept go on as if the rows had never been."""
    shop = Shop(tmp_path, time)
    several_days(shop)
    take(tmp_path)
    _forget(shop)

    shop.start()
    shop.run(time.now + timedelta(hours=8), timedelta(minutes=25))
    sweep(shop.committer)
    check(tmp_path, shop.expected)
    for cut in shop.known():
        shop.check(cut)
    shop.committer.close()


def _forget(shop: Shop) -> None:
    """What the tables must hold without the key, now and before."""
    for expected in (shop.expected, *shop.held.values()):
        expected.orders = [row for row in expected.orders if row[0] != GONE]
        expected.users.pop(GONE, None)
        expected.counts = {window: count for window, count in expected.counts.items() if window[0] != GONE}
    changes = _changes(shop.root)
    for batch, expected in [*shop.held.items(), (max(shop.held), shop.expected)]:
        expected.changes = sum(1 for each in changes if each <= batch)


def _changes(root: Path) -> list[int]:
    table = DeltaTable(root / "users_changelog")
    return [row["batch_id"] for row in dataset(root / "users_changelog", table).to_table(["batch_id"]).to_pylist()]


POINTS = [
    f"rewriting.{point}:{name}"
    for point in ("files_written", "log_made", "exchanged")
    for name in ("counts", "users_changelog")
]


@pytest.mark.parametrize("point", POINTS)
def test_a_call_that_was_killed_is_completed_by_the_next(point: str, tmp_path: Path, time: Clock) -> None:
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=4), timedelta(minutes=31))
    shop.committer.close()
    before, expected = seen(shop), seen(shop, without=GONE)
    faults.arm(lambda reached: _killed() if reached == point else None)
    try:
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path)
    finally:
        faults.arm(None)
    between = seen(shop)
    assert all(rows in (before[at], expected[at]) for at, rows in between.items()), "half a table can be seen"

    take(tmp_path)

    assert seen(shop) == expected and holding(tmp_path) == []
    _forget(shop)
    shop.start()
    shop.run(time.now + timedelta(hours=2), timedelta(minutes=31))
    check(tmp_path, shop.expected)
    shop.committer.close()


def _killed() -> NoReturn:
    raise KeyboardInterrupt


def test_an_exchange_in_several_steps_that_was_killed_leaves_a_log(
    tmp_path: Path, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=3), timedelta(minutes=31))
    shop.committer.close()
    expected = seen(shop, without=GONE)
    monkeypatch.setattr(rewriting, "_renameat2", lambda: None)
    rename, choose = Path.rename, random.Random(1)
    for _ in range(4):
        left = choose.randrange(2)

        def killed(self: Path, target: Path) -> Path:
            nonlocal left
            if "_delta_log" in (self.name, Path(target).name):
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path)
        monkeypatch.setattr(Path, "rename", rename)
    take(tmp_path)
    assert seen(shop) == expected and holding(tmp_path) == []


def test_a_full_disk_leaves_the_table_as_it_was(tmp_path: Path, time: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, time)
    shop.run(START + timedelta(hours=3), timedelta(minutes=31))
    shop.committer.close()
    before = seen(shop)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("deltaworks.files.replace_file", full)
        with pytest.raises(OSError, match="No space left"):
            take(tmp_path)
    assert seen(shop) == before
    take(tmp_path)
    assert holding(tmp_path) == []


def test_a_table_of_another_engine_is_rewritten_too(tmp_path: Path) -> None:
    table = tmp_path / "sales"
    for day in range(3):
        rows = pa.table({"key": [GONE, "user-1-1"], "day": [day, day], "sales": [1.5, 2.5]})
        write_deltalake(table, rows, mode="append", partition_by=["day"])
    DeltaTable(table).create_checkpoint()
    old = [sorted(map(str, DeltaTable(table, version=at).to_pyarrow_table().to_pylist())) for at in range(3)]
    taken = rewriting.take(table, None, UNWANTED, "e1")
    assert (taken.rows, taken.files) == (3, 3) and holding(table) == []
    for at, rows in enumerate(old):
        left = sorted(map(str, DeltaTable(table, version=at).to_pyarrow_table().to_pylist()))
        assert left == [row for row in rows if GONE not in row]


def test_bounds_of_a_file_that_is_not_there_any_more_are_dropped(tmp_path: Path) -> None:
    table = tmp_path / "sales"
    write_deltalake(table, pa.table({"key": [GONE, "user-1-1"]}))
    DeltaTable(table).create_checkpoint()
    write_deltalake(table, pa.table({"key": ["user-2-1"]}), mode="overwrite")
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert {path.suffix for path in holding(table)} == {".json", ".parquet"}, "in a commit, and in a checkpoint"

    rewriting.take(table, None, UNWANTED, "e1")

    assert holding(table) == []
    assert DeltaTable(table).to_pyarrow_table().to_pylist() == [{"key": "user-2-1"}]
    assert len(DeltaTable(table, version=0).file_uris()) == 1


def test_a_file_that_has_nothing_else_is_no_part_of_the_table_any_more(tmp_path: Path) -> None:
    committer = TableCommitter(tmp_path, "shop", QUERY, [ORDERS])
    committer.open(1)
    tables = TaskTables(tmp_path, [ORDERS], None, stage=0, task=0)
    tables.begin(0)
    tables.rows("orders").add((GONE, User("a", Decimal(1)), NOON_MS, Coordinates("raw", 0, 0)))
    committer.commit(0, tables.finish())
    committer.close()

    assert rewriting.take(tmp_path / "orders", SCHEMAS["orders"], UNWANTED, "e1").rows == 1

    log = DeltaLog(tmp_path / "orders")
    log.load()
    assert not log.files and holding(tmp_path) == []
    assert DeltaTable(tmp_path / "orders", version=log.version - 1).to_pyarrow_table().num_rows == 0
