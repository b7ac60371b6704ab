"""Rows are taken out of tables in an object store: at every moment, each version has all that stays, and it once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from deltaworks import faults
from deltaworks.errors import FencedError
from deltaworks.lakehouse import checkpoints, layout, rewriting, versions
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import dataset, delta_table, options
from deltaworks.lakehouse.rewriting import Taken, Unwanted
from deltaworks.object_path import ObjectPath
from tests.unit.lakehouse.lake import check, open_tables, task_tables, write_batch
from tests.unit.lakehouse.shop import START, Clock, Shop, simulate
from tests.unit.lakehouse.test_rewriting import GONE, SCHEMAS, UNWANTED, _forget

TABLE = "counts"
"""Most batches replace some of its files."""
SOME = (TABLE, "users_changelog")
Rows = Counter[str]
POINTS = ("files_written", "committed", "between", "log_made", "exchanged")


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return simulate(monkeypatch)


def shop_of_some_batches(root: Path, time: Clock) -> Shop:
    shop = Shop(root, time)
    shop.run(START + timedelta(minutes=100), timedelta(minutes=11))
    shop.committer.close()
    return shop


def take(
    root: Path, id: str = "e1", generation: int = 1, unwanted: Unwanted = UNWANTED, names: Iterable[str] = SCHEMAS
) -> dict[str, Taken]:
    return {
        name: rewriting.take(root / name, SCHEMAS[name], unwanted, id, {"erasure": id}, generation=generation)
        for name in names
    }


def seen(shop: Shop, *, without: str | None = None) -> dict[tuple[int, str], Rows]:
    """Some tables as of some cuts."""
    return {
        (cut.batch_id, name): rows_of(shop.root / name, cut.tables[name], without=without)
        for cut in shop.known()[::3]
        for name in SOME
    }


def rows_of(table: Path, version: int, *, without: str | None = None) -> Rows:
    """What a reader finds, by Delta's own rules."""
    found = dataset(table, delta_table(table, version)).to_table().to_pylist()
    return Counter(str(row) for row in found if row["key"] != without)


def readable(table: Path) -> dict[int, Rows]:
    """All versions that can be read."""
    found = {}
    for version in versions.numbers(table / layout.LOG_FOLDER):
        try:
            found[version] = rows_of(table, version)
        except Exception:  # its files, or what is before it, is deleted
            continue
    return found


def holding(root: ObjectPath, key: str = GONE) -> list[str]:
    """Objects that have the key in any form."""
    return [str(path) for path, _ in root.files() if key in str(path) or key in _content(path)]


def _content(path: ObjectPath) -> str:
    data = path.read_bytes()
    plain = data.decode("utf-8", "replace")
    return plain + str(pq.ParquetFile(BytesIO(data)).read().to_pydict()) if path.suffix == ".parquet" else plain


def killed_at(point: str, times: int = 1) -> Callable[[str], None]:
    reached = 0

    def hook(name: str) -> None:
        nonlocal reached
        reached += name == point
        if name == point and reached == times:
            _kill()

    return hook


def _kill() -> NoReturn:
    raise KeyboardInterrupt


def test_rows_are_gone_from_all_versions_and_objects(in_store: ObjectPath, time: Clock) -> None:
    shop = shop_of_some_batches(in_store, time)
    before, expected = seen(shop), seen(shop, without=GONE)
    assert before != expected and len(holding(in_store)) > 20
    found = {name: rewriting.find(in_store / name, UNWANTED) for name in SCHEMAS}

    taken = take(in_store)

    assert seen(shop) == expected and holding(in_store) == []
    for name, each in taken.items():
        assert (each.rows, each.older, each.files) == (found[name].rows, found[name].older, found[name].files)
    for name in ("orders", "counts", "users", "users_changelog"):
        log = DeltaLog(in_store / name)
        log.load()
        assert all(entry.rows for entry in log.files.values()), "a file without rows is part of the table"
        told = delta_table(in_store / name).history(1)[0]["operation"]
        assert log.is_as_left and (told == "ERASE") is (taken[name].rows > 0)
        assert "deltaworks.rewriting" not in " ".join(
            (in_store / name / layout.LOG_FOLDER / versions.file_name(number)).read_text()
            for number in versions.numbers(in_store / name / layout.LOG_FOLDER)
        )
    assert take(in_store) == {name: Taken() for name in SCHEMAS}, "nothing is left"
    _forget(shop)
    shop.start()
    shop.run(time.now + timedelta(hours=2), timedelta(minutes=31))
    check(in_store, shop.expected)
    shop.committer.close()


def test_at_every_moment_each_version_has_all_other_rows_once(in_store: ObjectPath, time: Clock) -> None:
    shop_of_some_batches(in_store, time)
    table = in_store / TABLE
    for number in versions.numbers(table / layout.LOG_FOLDER)[3::5]:
        log = DeltaLog(table)
        log.load(up_to=number)
        checkpoints.write(table, log.state())
    before = readable(table)
    others = {version: rows_of(table, version, without=GONE) for version in before}
    newest, moments = max(before), 0

    def look(point: str) -> None:
        nonlocal moments
        if not (point.startswith("rewriting.") and point.endswith(f":{TABLE}")):
            return
        moments += 1
        for version, whole in before.items():
            found = rows_of(table, version)
            assert others[version] <= found <= whole, (point, version)
        assert rows_of(table, newest + 1 if point != f"rewriting.files_written:{TABLE}" else newest) in (
            before[newest],
            others[newest],
        )

    assert before != others and len(before) > 8
    faults.arm(look)
    rewriting.take(table, SCHEMAS[TABLE], UNWANTED, "e1", generation=1)
    faults.arm(None)

    assert moments > 10
    assert {version: rows_of(table, version) for version in before} == others


@pytest.mark.parametrize(
    ("point", "goes_on"),
    [
        pytest.param(point, goes_on, marks=() if goes_on == bool(number % 2) else pytest.mark.slow)
        for number, point in enumerate(POINTS)
        for goes_on in (False, True)
    ],
)
def test_a_call_that_was_killed_is_completed_by_the_next(
    in_store: ObjectPath, time: Clock, point: str, goes_on: bool
) -> None:
    shop = shop_of_some_batches(in_store, time)
    before, expected = seen(shop), seen(shop, without=GONE)
    faults.arm(killed_at(f"rewriting.{point}:{TABLE}", 4 if point == "between" else 1))
    with pytest.raises(KeyboardInterrupt):
        take(in_store, names=SOME)
    faults.arm(None)
    between = seen(shop)
    assert all(expected[at] <= rows <= before[at] for at, rows in between.items())
    if goes_on:
        shop.start()
        shop.batch()
        time.now += timedelta(minutes=31)
        shop.committer.close()
        expected = seen(shop, without=GONE)

    take(in_store)

    assert seen(shop) == expected and holding(in_store) == []
    _forget(shop)
    shop.start()
    shop.batch()
    check(in_store, shop.expected)
    shop.committer.close()


def test_a_call_that_was_killed_and_another_persons(in_store: ObjectPath, time: Clock) -> None:
    shop = shop_of_some_batches(in_store, time)
    other = "user-6-1"
    mine = Unwanted(
        lambda rows: (
            pa.compute.equal(rows["key"].combine_chunks(), other)
            if pa.types.is_string(rows.schema.field("key").type)
            else None
        ),
        lambda text: other in text,
    )
    faults.arm(killed_at(f"rewriting.between:{TABLE}", 5))
    with pytest.raises(KeyboardInterrupt):
        take(in_store, names=[TABLE])
    faults.arm(None)
    expected = {(batch, name): Counter({row: n for row, n in rows.items()
                                        if name != TABLE or f"'{other}'" not in row})
                for (batch, name), rows in seen(shop).items()}  # fmt: skip
    expected = {(batch, name): Counter({row: n for row, n in rows.items() if name != TABLE or GONE not in row})
                for (batch, name), rows in expected.items()}  # fmt: skip

    take(in_store, "e2", unwanted=mine, names=[TABLE])
    take(in_store, names=[TABLE])

    assert seen(shop) == expected
    assert not holding(in_store / TABLE) and not holding(in_store / TABLE, f'"{other}"')


def test_who_was_replaced_does_not_commit_any_more(in_store: ObjectPath, time: Clock) -> None:
    shop = shop_of_some_batches(in_store, time)
    zombie = open_tables(in_store, generation=2)
    writes = write_batch(task_tables(in_store), len(shop.held), shop.expected)

    take(in_store, generation=3, names=[TABLE])

    with pytest.raises(FencedError, match="generation 3 has taken over"):
        zombie.commit(len(shop.held), writes)
    zombie.close()
    with pytest.raises(FencedError, match="generation 3 has taken over"):
        take(in_store, "e2", generation=2, names=[TABLE])


def test_a_table_of_another_engine_is_rewritten_too(in_store: ObjectPath) -> None:
    table = in_store / "sales"

    def write(key: str, day: int | None, **how: Any) -> None:
        rows = pa.table({"key": [key, "user-1-1"], "day": pa.array([day, day], pa.int64()), "sales": [1.5, 2.5]})
        write_deltalake(str(table), rows, partition_by=["day"], storage_options=options(table), **how)

    for day in (0, 1, None, 2):
        write(GONE, day, mode="append")
    opened = delta_table(table)
    opened.create_checkpoint()
    write("user-2-1", 1, mode="overwrite", predicate="day = 1")
    delta_table(table).restore(3)  # files are part of the table again
    count = delta_table(table).version() + 1
    old = [rows_of(table, at, without=GONE) for at in range(count)]
    for times in (1, 2, 4, 6):
        faults.arm(killed_at("rewriting.between:sales", times))
        with pytest.raises(KeyboardInterrupt):
            rewriting.take(table, None, UNWANTED, "e1")
        faults.arm(None)
        assert all(old[at] <= rows_of(table, at) for at in range(count))

    taken = rewriting.take(table, None, UNWANTED, "e1")

    assert (taken.rows, taken.older, taken.files) == (4, 0, 4) and holding(table) == []
    assert [rows_of(table, at) for at in range(count)] == old
    assert rows_of(table, delta_table(table).version()) == old[-1]


def test_a_writer_that_meets_it_is_not_undone(in_store: ObjectPath) -> None:
    """Of a table that no pipeline has: a commit that comes in between counts."""
    table = in_store / "sales"

    def write(key: str, mode: Any) -> None:
        write_deltalake(str(table), pa.table({"key": [key]}), mode=mode, storage_options=options(table))

    write(GONE, "append")
    write("user-1-1", "append")
    choose = random.Random(1)
    came = 0

    def meet(point: str) -> None:
        nonlocal came
        if point.startswith("rewriting.") and came < 4:
            came += 1
            write(f"user-{came}-9", choose.choice(["append", "overwrite"]))

    faults.arm(meet)
    rewriting.take(table, None, UNWANTED, "e1")
    faults.arm(None)

    assert came == 4 and holding(table) == []
    log = DeltaLog(table)
    log.load()
    assert len(rows_of(table, log.version)) == len(log.files) > 0


def test_what_other_engines_have_made_of_versions_goes(in_store: ObjectPath, time: Clock) -> None:
    shop_of_some_batches(in_store, time)
    log = in_store / TABLE / layout.LOG_FOLDER
    for name in ("00000000000000000003.crc", "00000000000000000001.00000000000000000004.compacted.json"):
        (log / name).write_text(f'{{"max": "{GONE}"}}')

    take(in_store, names=[TABLE])

    assert holding(in_store / TABLE) == [] and not [path for path in log.iterdir() if path.suffix == ".crc"]


def test_a_reader_that_has_a_table_open_finds_the_successors(in_store: ObjectPath, time: Clock) -> None:
    shop_of_some_batches(in_store, time)
    reader = delta_table(in_store / TABLE)
    expected = rows_of(in_store / TABLE, reader.version(), without=GONE)

    take(in_store, names=[TABLE])

    reader.update_incremental()
    assert Counter(map(str, dataset(in_store / TABLE, reader).to_table().to_pylist())) == expected
