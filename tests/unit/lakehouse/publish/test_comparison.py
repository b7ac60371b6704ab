"""Tables of a replay against production: as a model in plain Python says, and only what a publish would replace."""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import duckdb
import msgspec
import pyarrow as pa
import pytest

from deltaworks.errors import TableError
from deltaworks.kernel.records import Coordinates, DeadLetter
from deltaworks.lakehouse import layout, parquet
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.log import Commit
from deltaworks.lakehouse.publish import comparison, publication
from deltaworks.lakehouse.publish.comparison import Comparison, Limits, TableComparison, compare
from deltaworks.lakehouse.publish.differences import Differences, Side
from deltaworks.lakehouse.publish.publication import PublicationRequest
from deltaworks.lakehouse.schema import plan_schemas, schemas
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.columns import DecimalDigits
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = 20_000 * DAY_MS
TASKS, BATCHES, LAST_BATCH = 2, 12, 7
ENDS = {"raw": {"0": 40, "1": 30}}
NAN = float("nan")


class Part(msgspec.Struct, frozen=True):
    name: str
    rate: float | None
    tags: dict[str, int]


class Value(msgspec.Struct, frozen=True):
    amount: Annotated[Decimal, DecimalDigits(18, 4)]
    rate: float
    parts: list[Part]
    c0: str | None = None
    """Named as what the comparison's queries have inside."""


class Key(msgspec.Struct, frozen=True):
    id: int
    name: str | None


ORDERS = DeltaSink(name="o", table="orders", kind=TableKind.APPEND, key=str, value=Value)
USERS = DeltaSink(name="u", table="users", kind=TableKind.CHANGELOG, key=Key, value=Value)
HOURS = DeltaSink(name="h", table="hours", kind=TableKind.WINDOWED, key=str, value=Value)
SINKS, DEAD = (ORDERS, USERS, HOURS), "letters"
SCHEMAS = plan_schemas(SINKS, DEAD)
NAMES = tuple(schema.name for schema in SCHEMAS)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row before it is written, whatever the table."""

    table: str
    batch: int
    task: int
    key: Any
    value: Value | None
    time_ms: int
    source: Coordinates

    @property
    def window(self) -> tuple[int, int]:
        start = self.time_ms // HOUR_MS * HOUR_MS
        return start, start + HOUR_MS


@pytest.mark.parametrize("seed", range(6))
def test_random_tables_differ_as_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(comparison, "SLICE_ROWS", 1 if seed % 2 else comparison.SLICE_ROWS)
    choose = random.Random(seed)
    before = stream(choose)
    after = [row for row in mutated(choose, before) if row.batch <= LAST_BATCH]
    write(tmp_path / "production", before)
    write(tmp_path / "staging", after)
    from_ms, to_ms = choose.choice([(None, None), (START_MS + DAY_MS, None), (START_MS, START_MS + DAY_MS)])

    found = compare_all(tmp_path, from_ms=from_ms, to_ms=to_ms, parts=1 + seed % 3)

    assert [table.table for table in found.tables] == list(NAMES)
    for table in found.tables:
        expected = MODELS[table.table](before, after, from_ms, to_ms)
        assert summary(table) == expected.summary(), table.table
    assert found.differences > 0
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found


@pytest.mark.parametrize("seed", range(3))
def test_after_a_publish_nothing_differs(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    before = stream(choose)
    after = [row for row in mutated(choose, before) if row.batch <= LAST_BATCH]
    write(tmp_path / "production", before)
    write(tmp_path / "staging", after, query="run", last_batch=LAST_BATCH)
    to_ms = START_MS + 2 * DAY_MS
    assert compare_all(tmp_path, to_ms=to_ms).differences > 0
    request = PublicationRequest(
        run_id="run",
        pipeline="app",
        code_version="1",
        batches=(0, LAST_BATCH),
        end_offsets=ENDS,
        from_ms=None,
        to_ms=to_ms,
        tables=NAMES,
        reason="",
        requested_by="me",
    )

    committer = TableCommitter(tmp_path / "production", "app", "q", SINKS, DEAD)
    committer.open(2)
    publication.publish(committer, tmp_path / "staging", request, tmp_path / "publications")
    committer.close()

    found = compare_all(tmp_path, to_ms=to_ms)
    assert found.equal
    assert all(table.rows.equal > 0 for table in found.tables)


def test_the_same_rows_in_other_files_are_equal(tmp_path: Path) -> None:
    rows = stream(random.Random(1))
    write(tmp_path / "production", rows)
    write(tmp_path / "staging", [row for row in rows if row.batch <= LAST_BATCH], at_once=("orders", DEAD))

    found = compare_all(tmp_path, tables=tuple(name for name in NAMES if name != "hours"))

    assert found.equal
    assert found.differences == 0
    assert all(table.rows.equal > 2 for table in found.tables)
    assert not any(table.samples for table in found.tables)


def test_the_replay_of_a_part_is_not_compared_with_what_the_stream_did_since(tmp_path: Path) -> None:
    """The key is updated, and another one deleted, by batches after the replay's; production's snapshot shows that."""
    one, two = Key(1, "one"), Key(2, None)
    early = [row("users", 0, one, value(1)), row("users", 1, two, value(2))]
    write(tmp_path / "production", [*early, row("users", 9, one, value(5)), row("users", 9, two, None)])
    write(tmp_path / "staging", early)

    users = table(compare_all(tmp_path, tables=("users",)), "users")

    assert (users.rows.production, users.rows.staging, users.rows.equal) == (2, 2, 2)


def test_of_files_that_were_merged_the_rows_of_the_replays_batches_are_compared(tmp_path: Path) -> None:
    """Among them rows of earlier records, which a later batch has written, and rows of no record."""
    sources = [Coordinates("raw", 0, 0), Coordinates("", -1, -1), Coordinates("exchange", 0, 5)]
    rows = [row("orders", batch, "a", value(batch), source=sources[batch % 3]) for batch in range(40)]
    write(tmp_path / "production", rows)
    write(tmp_path / "staging", [each for each in rows if each.batch <= LAST_BATCH])
    assert len(list((tmp_path / "production" / "orders").glob("merged-*"))) == 1

    counts = table(compare_all(tmp_path, tables=("orders",)), "orders").rows

    assert (counts.production, counts.staging, counts.equal) == (LAST_BATCH + 1,) * 3


def test_of_a_file_that_does_not_say_its_batches_the_records_decide(tmp_path: Path) -> None:
    """Offset 39 was read by the replay; 40 was not, and of a row of no record nobody knows."""
    sources = [Coordinates("raw", 0, 39), Coordinates("raw", 0, 40), Coordinates("", -1, -1)]
    rows = [row("orders", 0, "a", value(1), source=source) for source in sources]
    write(tmp_path / "production", rows)
    write(tmp_path / "staging", rows[:1])
    rename_file(tmp_path / "production", "orders", "merged")

    counts = table(compare_all(tmp_path, tables=("orders",)), "orders").rows

    assert (counts.production, counts.equal) == (1, 1)


def test_money_is_exact_and_nan_equals_nan(tmp_path: Path) -> None:
    one, other = value(1, amount="0.3000", rate=NAN), value(1, amount="0.3001", rate=NAN)
    write(tmp_path / "production", [row("orders", 0, "a", one), row("orders", 0, "b", one, offset=1)])
    write(tmp_path / "staging", [row("orders", 0, "a", one), row("orders", 0, "b", other, offset=1)])

    orders = table(compare_all(tmp_path, tables=("orders",)), "orders")

    assert (orders.rows.equal, orders.rows.changed) == (1, 1)
    assert {name for name, count in orders.columns.items() if count} == {"amount"}
    (sample,) = orders.samples
    assert sample.before is not None and sample.after is not None
    assert (sample.before["amount"], sample.after["amount"]) == ("0.3000", "0.3001")
    assert sample.before["rate"] == "nan"


def test_maps_have_no_order_however_deep_they_are(tmp_path: Path) -> None:
    one = Value(Decimal(1), 0.0, [Part("p", None, {"x": 1, "y": 2})])
    other = Value(Decimal(1), -0.0, [Part("p", None, {"y": 2, "x": 1})])
    write(tmp_path / "production", [row("orders", 0, "a", one)])
    write(tmp_path / "staging", [row("orders", 0, "a", other)])

    assert compare_all(tmp_path, tables=("orders",)).equal


def test_nested_cells_that_differ_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "production", [row("orders", 0, "a", Value(Decimal(1), 1.0, [Part("p", None, {"x": 1})]))])
    write(tmp_path / "staging", [row("orders", 0, "a", Value(Decimal(1), 1.0, [Part("p", NAN, {"x": 2})]))])

    (sample,) = table(compare_all(tmp_path, tables=("orders",)), "orders").samples

    assert sample.before is not None and sample.after is not None
    assert sample.before["parts"] == [{"name": "p", "rate": None, "tags": {"x": 1}}]
    assert sample.after["parts"] == [{"name": "p", "rate": "nan", "tags": {"x": 2}}]
    assert sample.after["timestamp"] == "2024-10-04T00:00:00Z"


def test_rows_more_of_the_same_record_are_counted(tmp_path: Path) -> None:
    tripled = [row("orders", 0, "a", value(1))] * 3
    write(tmp_path / "production", tripled[:1])
    write(tmp_path / "staging", tripled)

    rows = table(compare_all(tmp_path, tables=("orders",)), "orders").rows

    assert (rows.equal, rows.changed, rows.only_production, rows.only_staging) == (1, 0, 0, 2)


def test_a_window_that_is_there_twice_is_found(tmp_path: Path) -> None:
    rows = [row("hours", 0, f"a{number}", value(number)) for number in range(3)]
    write(tmp_path / "production", rows, closed_ms=START_MS + DAY_MS)
    write(tmp_path / "staging", rows, closed_ms=START_MS + DAY_MS)
    double_files(tmp_path / "staging", "hours")

    counts = table(compare_all(tmp_path, tables=("hours",)), "hours").rows

    assert (counts.production, counts.staging, counts.equal, counts.only_staging) == (3, 6, 3, 3)


def test_the_order_of_updates_of_one_record_matters(tmp_path: Path) -> None:
    first, second = row("users", 0, Key(1, None), value(1)), row("users", 0, Key(1, None), value(2))
    write(tmp_path / "production", [first, second])
    write(tmp_path / "staging", [second, first])

    found = compare_all(tmp_path)

    assert table(found, "users_changelog").rows.changed == 2
    assert table(found, "users").rows.changed == 1


def test_updates_of_one_record_in_several_batches_are_in_the_order_of_batches(tmp_path: Path) -> None:
    early, late = (row("users", batch, Key(1, None), value(batch)) for batch in (1, 2))
    write(tmp_path / "production", [early, late])
    write(tmp_path / "staging", [early])

    rows = table(compare_all(tmp_path, tables=("users_changelog",)), "users_changelog").rows

    assert (rows.equal, rows.changed, rows.only_production) == (1, 0, 1)


def test_days_with_windows_that_may_change_are_left_out_and_named(tmp_path: Path) -> None:
    rows = [row("hours", 0, "a", value(day), time_ms=START_MS + day * DAY_MS) for day in range(3)]
    write(tmp_path / "production", rows, closed_ms=START_MS + 2 * DAY_MS)
    write(tmp_path / "staging", rows, closed_ms=START_MS + DAY_MS)

    hours = table(compare_all(tmp_path, tables=("hours",)), "hours")

    assert hours.open_days == ("2024-10-05", "2024-10-06")
    assert [day.day for day in hours.days] == ["2024-10-04"]
    assert table(compare_all(tmp_path, to_ms=START_MS + DAY_MS, tables=("hours",)), "hours").open_days == ()


def test_a_day_that_only_one_side_has_closed_is_left_out_though_no_window_in_it_is_open(tmp_path: Path) -> None:
    """Only some windows have rows, such as those that pass a filter: the first of a day may come with a later batch."""
    known = row("hours", 0, "a", value(1))
    later = row("hours", LAST_BATCH + 1, "a", value(2), time_ms=START_MS + DAY_MS)
    write(tmp_path / "production", [known, later], closed_ms=START_MS + 2 * DAY_MS, last_batch=LAST_BATCH + 1)
    write(tmp_path / "staging", [known], closed_ms=START_MS + DAY_MS)

    hours = table(compare_all(tmp_path, tables=("hours",)), "hours")

    assert (hours.rows.production, hours.rows.different, hours.open_days) == (1, 0, ("2024-10-05",))


def test_a_day_that_production_has_not_closed_is_left_out(tmp_path: Path) -> None:
    known = row("hours", 0, "a", value(1))
    write(tmp_path / "production", [known], closed_ms=START_MS + DAY_MS)
    write(
        tmp_path / "staging",
        [known, row("hours", 1, "a", value(2), time_ms=START_MS + DAY_MS)],
        closed_ms=START_MS + 2 * DAY_MS,
    )

    hours = table(compare_all(tmp_path, tables=("hours",)), "hours")

    assert (hours.rows.staging, hours.rows.different, hours.open_days) == (1, 0, ("2024-10-05",))


def test_batches_and_exchange_offsets_say_nothing_if_the_replay_made_its_own_batches(tmp_path: Path) -> None:
    exchange = [Coordinates("exchange", 1, batch << 32) for batch in (1, 4)]
    other = [Coordinates("exchange", 0, batch << 32 | 5) for batch in (2, 3)]
    for root, batches, sources in (("production", (1, 4), exchange), ("staging", (2, 3), other)):
        rows = [
            row(name, batch, Key(1, None) if name == "users" else "a", value(1), source=source)
            for name in ("orders", "users")
            for batch, source in zip(batches, sources, strict=True)
        ]
        write(tmp_path / root, rows)

    assert not table(compare_all(tmp_path, tables=("orders",)), "orders").equal
    assert compare_all(tmp_path, same_batches=False).equal


def test_a_table_that_production_does_not_have_is_new_throughout(tmp_path: Path) -> None:
    write(tmp_path / "staging", [row("orders", 0, "a", value(1))])

    orders = table(compare_all(tmp_path, tables=("orders",)), "orders")

    assert (orders.production_version, orders.rows.only_staging, orders.new_columns) == (None, 1, ())
    assert not orders.equal


def test_a_column_that_only_the_new_code_has_is_named(tmp_path: Path) -> None:
    class Less(msgspec.Struct, frozen=True):
        amount: Annotated[Decimal, DecimalDigits(18, 4)]
        old: int

    less = DeltaSink(name="o", table="orders", kind=TableKind.APPEND, key=str, value=Less)
    write(tmp_path / "production", [row("orders", 0, "a", Less(Decimal(1), 2))], sinks=[less])  # type: ignore[arg-type]
    write(tmp_path / "staging", [row("orders", 0, "a", value(1))])

    orders = table(compare_all(tmp_path, tables=("orders",)), "orders")

    assert orders.new_columns == ("rate", "parts", "c0")
    assert orders.gone_columns == ("old",)
    assert (orders.rows.changed, orders.columns["amount"], orders.columns["rate"]) == (1, 0, 1)


def test_another_type_of_column_is_refused(tmp_path: Path) -> None:
    class Other(msgspec.Struct, frozen=True):
        amount: int

    other = DeltaSink(name="o", table="orders", kind=TableKind.APPEND, key=str, value=Other)
    write(tmp_path / "production", [row("orders", 0, "a", Other(1))], sinks=[other])  # type: ignore[arg-type]
    write(tmp_path / "staging", [])

    with pytest.raises(TableError, match=r"amount: long -> decimal\(18,4\)"):
        compare_all(tmp_path, tables=("orders",))


def test_a_replay_without_the_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="The replay has no Delta table 'orders'"):
        compare_all(tmp_path)


def test_folders_may_be_named_like_patterns(tmp_path: Path) -> None:
    """The pattern's other folder holds files of the same names, in which all is equal."""
    folder, other = tmp_path / "a[1]*", tmp_path / "a1"
    write(folder / "production", [row("orders", 0, "a", value(1))])
    write(folder / "staging", [row("orders", 0, "a", value(2))])
    shutil.copytree(folder, other)
    (before,), (after,) = ((other / root / "orders").glob("part-*.parquet") for root in ("production", "staging"))
    after.write_bytes(before.read_bytes())

    assert table(compare_all(folder, tables=("orders",)), "orders").rows.changed == 1


@pytest.mark.parametrize("parts", [1, 4])
def test_samples_are_the_first_rows_by_identity_of_each_kind(tmp_path: Path, parts: int) -> None:
    write(tmp_path / "production", [row("orders", 0, "a", value(1), offset=n) for n in range(9, -1, -1)])
    write(tmp_path / "staging", [row("orders", 0, "a", value(1 + n % 2), offset=n) for n in range(5, 15)])

    samples = table(compare_all(tmp_path, samples=2, parts=parts, tables=("orders",)), "orders").samples

    shown = [(s.kind, (s.before or s.after or {})["source_offset"]) for s in samples]
    assert shown == [
        ("changed", 5),
        ("changed", 7),
        ("only in production", 0),
        ("only in production", 1),
        ("only in staging", 10),
        ("only in staging", 11),
    ]


@pytest.mark.slow
def test_a_million_rows_need_little_memory(tmp_path: Path) -> None:
    rows = 1_000_000
    for root, every in (("production", rows + 1), ("staging", 1000)):
        write(tmp_path / root, [])
        add_windows(tmp_path / root, rows, every)

    hours = table(compare_all(tmp_path, tables=("hours",), memory_mb=100), "hours")

    assert (hours.rows.production, hours.rows.equal, hours.rows.changed) == (rows, rows - 1000, 1000)
    assert hours.rows.different == hours.columns["rate"] == 1000


def test_rows_that_do_not_fit_are_compared_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stream(random.Random(3))
    write(tmp_path / "production", rows)
    write(tmp_path / "staging", mutated(random.Random(4), rows))
    whole = compare_all(tmp_path)
    tried = []
    pair = Differences._pair

    def short_of_memory(self: Differences, before: Side, after: Side, part: int, parts: int) -> None:
        pair(self, before, after, part, parts)
        tried.append((part, parts))
        if parts < 16 and part == parts - 1:
            raise duckdb.OutOfMemoryException("no")

    monkeypatch.setattr(Differences, "_pair", short_of_memory)
    found = compare_all(tmp_path)

    assert found.tables == whole.tables
    assert (0, 1) in tried and (3, 4) in tried and (15, 16) in tried


# What is there, and what is expected of it.


def row(
    table: str,
    batch: int,
    key: Any,
    value: Value | None,
    *,
    offset: int = 0,
    time_ms: int = START_MS,
    source: Coordinates | None = None,
) -> Row:
    source = source or Coordinates("raw", 0, offset)
    return Row(table=table, batch=batch, task=0, key=key, value=value, time_ms=time_ms, source=source)


def value(number: int, *, amount: str = "1", rate: float = 1.0) -> Value:
    return Value(Decimal(amount), rate, [], str(number))


def stream(choose: random.Random) -> list[Row]:
    """Rows of every table, those of one record and key several times at times."""
    rows = []
    for batch in range(BATCHES):
        for task in range(TASKS):
            for number in range(choose.randrange(20)):
                source = Coordinates("raw", task, max(0, batch - choose.randrange(3)) * 5 + number // 4)
                if choose.random() < 0.3:
                    source = Coordinates("exchange", choose.randrange(2), batch << 32 | number // 4)
                if choose.random() < 0.1:
                    source = Coordinates("", -1, -1)
                name = choose.choice(["orders", "users", "hours", DEAD])
                key = Key(task, choose.choice([None, "", "x"])) if name == "users" else f"{task}-{choose.randrange(3)}"
                gone = name == "users" and choose.random() < 0.2
                rows.append(
                    Row(
                        table=name,
                        batch=batch,
                        task=task,
                        key=key,
                        value=None if gone else some_value(choose),
                        time_ms=START_MS + choose.randrange(3 * DAY_MS),
                        source=source,
                    )
                )
    return rows


def some_value(choose: random.Random) -> Value:
    parts = [
        Part(choose.choice("ab"), choose.choice([None, NAN, 0.5]), dict.fromkeys(choose.sample("xyz", 2), 1))
        for _ in range(choose.randrange(3))
    ]
    amount = Decimal(choose.randrange(3)).scaleb(-4)
    return Value(amount, choose.choice([NAN, 1.5]), parts, choose.choice([None, "", "c"]))


def mutated(choose: random.Random, rows: Iterable[Row]) -> list[Row]:
    """What other code might have made of the same records."""
    result = []
    for each in rows:
        match choose.randrange(12):
            case 0:
                continue
            case 1:
                result += [each, each]
            case 2 | 3:
                result.append(_other(choose, each))
            case _:
                result.append(each)
    return result


def _other(choose: random.Random, row: Row) -> Row:
    time_ms = row.time_ms if choose.random() < 0.5 else START_MS + choose.randrange(3 * DAY_MS)
    return Row(**{**row.__dict__, "value": some_value(choose), "time_ms": time_ms})


CLOSED_MS = START_MS + 2 * DAY_MS + HOUR_MS


def write(
    root: Path,
    rows: Sequence[Row],
    *,
    closed_ms: int = CLOSED_MS,
    sinks: Sequence[DeltaSink] = SINKS,
    at_once: Sequence[str] = (),
    query: str = "q",
    last_batch: int = BATCHES,
) -> None:
    """Writes rows as a stream does, batch by batch; tables of `at_once` in the last batch of the replay."""
    root.mkdir(parents=True)
    committer = TableCommitter(root, "app", query, sinks, DEAD)
    committer.open(1)
    tasks = [TaskTables(root, sinks, DEAD, stage=0, task=task, page_rows=16) for task in range(TASKS)]
    for batch in sorted({each.batch for each in rows} | {LAST_BATCH, last_batch}):
        for task in tasks:
            task.begin(batch)
        for each in rows:
            if (LAST_BATCH if each.table in at_once else each.batch) == batch:
                _write(tasks[each.task], each)
        if batch == last_batch and HOURS in sinks:
            for task in tasks:
                task.rows("hours").close_windows(closed_ms + 1)
        committer.commit(batch, [write for task in tasks for write in task.finish()])
    committer.refresh_snapshots(force=True)
    committer.settle()
    committer.close()


def _write(tables: TaskTables, row: Row) -> None:
    match row.table:
        case "orders":
            tables.rows("orders").add((row.key, row.value, row.time_ms, row.source))
        case "users":
            tables.rows("users").add((row.key, row.value, row.time_ms, row.source))
        case "hours":
            tables.rows("hours").add((row.key, row.value, row.time_ms, *row.window))
        case _:
            headers = (("h", b"1"), ("h", None))
            letter = DeadLetter(
                str(row.key).encode(), b"{", headers, row.time_ms, row.source, "E", str(row.value), "o", ""
            )
            tables.dead_letter(letter)


def rename_file(root: Path, name: str, kind: str) -> None:
    """Puts a file of another kind in place of a table's only one."""
    (schema,) = schemas(next(sink for sink in SINKS if sink.table == name))
    committer = TableCommitter(root, "app", "q", SINKS, DEAD)
    committer.open(2)
    (old,) = committer.tables[name].log.files
    rows = parquet.read(root, schema, old)
    new = parquet.write(root, schema, layout.part_name(kind, 0, 0, layout.query_tag("q")), rows)
    committer.tables[name].log.commit(Commit(added=[new], removed=[old]))
    committer.close()


def double_files(root: Path, name: str) -> None:
    """Adds every row of a table once more."""
    (sink,) = (sink for sink in SINKS if sink.table == name)
    (schema,) = schemas(sink)
    committer = TableCommitter(root, "app", "q", SINKS, DEAD)
    committer.open(2)
    log = committer.tables[name].log
    added = []
    for path in list(log.files):
        folder = path.rpartition("/")[0]
        copy = f"{folder}/{layout.part_name('final', 99, 0, layout.query_tag('q'))}"
        added.append(parquet.write(root, schema, copy, parquet.read(root, schema, path)))
    log.commit(Commit(added=added))
    committer.close()


def add_windows(root: Path, rows: int, every: int) -> None:
    """Adds final windows in ten files; each `every`-th but the first has another rate."""
    (schema,) = schemas(HOURS)
    committer = TableCommitter(root, "app", "q", SINKS, DEAD)
    committer.open(2)
    added = []
    for begin in range(0, rows, rows // 10):
        numbers = pa.array(range(begin, begin + rows // 10), pa.int64())
        start_ms = START_MS + begin * 10 // rows % 2 * DAY_MS
        rates = [float((number + 1) % every == 0) for number in numbers.to_pylist()]
        known = {"key": numbers.cast(pa.string()), "rate": pa.array(rates), "is_final": pa.repeat(True, len(numbers))}
        for name, time_ms in (("window_start", start_ms), ("window_end", start_ms + HOUR_MS), ("timestamp", start_ms)):
            known[name] = pa.repeat(pa.scalar(time_ms * 1000, pa.int64()), len(numbers)).cast(TIMESTAMP)
        columns = [known.get(field.name, pa.nulls(len(numbers), field.type)) for field in schema.file]
        name = layout.part_name("final", BATCHES + 1, 0, layout.query_tag("q"))
        path = f"window_date={layout.window_day(start_ms)}/{name}"
        added.append(parquet.write(root, schema, path, pa.table(columns, schema=schema.file)))
    committer.tables["hours"].log.commit(Commit(added=added))
    committer.close()


def compare_all(
    folder: Path,
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    tables: tuple[str, ...] = NAMES,
    samples: int = 5,
    same_batches: bool = True,
    parts: int = 1,
    memory_mb: int = 200,
) -> Comparison:
    return compare(
        SCHEMAS,
        folder / "production",
        folder / "staging",
        from_ms=from_ms,
        to_ms=to_ms,
        end_offsets=ENDS,
        last_batch=LAST_BATCH,
        tables=tables,
        same_batches=same_batches,
        limits=Limits(memory_mb=memory_mb, folder=folder, samples=samples, parts=parts),
    )


def table(found: Comparison, name: str) -> TableComparison:
    (one,) = (table for table in found.tables if table.table == name)
    return one


Line = tuple[Any, dict[str, Any], int]
"""Identity, cells and time (ms) of a row, as the model sees it."""


@dataclass(frozen=True)
class Expected:
    days: dict[str, tuple[int, ...]]
    columns: dict[str, int]

    def summary(self) -> dict[str, Any]:
        return {"days": self.days, "columns": {name: count for name, count in self.columns.items() if count}}


def summary(table: TableComparison) -> dict[str, Any]:
    days = {
        day.day: (day.production, day.staging, day.equal, day.changed, day.only_production, day.only_staging)
        for day in table.days
    }
    return {"days": days, "columns": {name: count for name, count in table.columns.items() if count}}


def model(before: Sequence[Line], after: Sequence[Line]) -> Expected:
    """Equal rows cancel each other out, the others are paired in order."""
    days: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    columns: Counter[str] = Counter()
    left = [_remaining(before, after), _remaining(after, before)]
    equal = Counter(_day(time) for _, _, time in before)
    for identity in left[0].keys() | left[1].keys():
        old, new = left[0].get(identity, []), left[1].get(identity, [])
        for (one, time), (other, _) in zip(old, new, strict=False):
            equal[_day(time)] -= 1
            days[_day(time)][3] += 1
            columns.update(name for name in one if _plain(one[name]) != _plain(other[name]))
        for _, time in old[len(new) :]:
            equal[_day(time)] -= 1
            days[_day(time)][4] += 1
        for _, time in new[len(old) :]:
            days[_day(time)][5] += 1
    for day, count in equal.items():
        days[day][2] = count
    for counts in days.values():
        counts[0] = counts[2] + counts[3] + counts[4]
        counts[1] = counts[2] + counts[3] + counts[5]
    return Expected({day: tuple(counts) for day, counts in sorted(days.items())}, dict(columns))


def _remaining(ours: Sequence[Line], theirs: Sequence[Line]) -> dict[Any, list[tuple[dict[str, Any], int]]]:
    surplus = Counter(map(_line, ours))
    surplus.subtract(map(_line, theirs))
    left: dict[Any, list[tuple[dict[str, Any], int]]] = defaultdict(list)
    for line in ours:
        identity, cells, time = line
        left[identity] += [(cells, time)] * max(0, surplus.pop(_line(line), 0))
    return {identity: rows for identity, rows in left.items() if rows}


def _line(line: Line) -> Any:
    return line[0], _plain(line[1]), line[2]


def _plain(cell: Any) -> Any:
    """Equal and hashable if the cells are."""
    return str(sorted(cell.items())) if isinstance(cell, dict) else repr(cell)


def _day(time_ms: int) -> str:
    return layout.window_day(time_ms)


def _cells(value: Value | None) -> dict[str, Any]:
    if value is None:
        return dict.fromkeys(Value.__struct_fields__)
    parts = [(part.name, part.rate, sorted(part.tags.items())) for part in value.parts]
    return {"amount": value.amount, "rate": value.rate, "parts": parts, "c0": value.c0}


def _in_order(rows: Sequence[Row], table: str) -> list[Row]:
    return sorted((row for row in rows if row.table == table), key=lambda row: (row.batch, row.task))


def _appended(table: str) -> Callable[..., Expected]:
    def lines(rows: Sequence[Row], from_ms: int | None, to_ms: int | None) -> list[Line]:
        return [
            (
                (row.source, row.key),
                {**(_cells(row.value) if table == "orders" else {"message": str(row.value)}), "timestamp": row.time_ms},
                row.time_ms,
            )
            for row in _in_order(rows, table)
            if row.batch <= LAST_BATCH and (from_ms or 0) <= row.time_ms < (to_ms or 1 << 60)
        ]

    return lambda before, after, *times: model(lines(before, *times), lines(after, *times))


def _changelog(before: Sequence[Row], after: Sequence[Row], *_: Any) -> Expected:
    def lines(rows: Sequence[Row]) -> list[Line]:
        count: Counter[Any] = Counter()
        result: list[Line] = []
        for row in _in_order(rows, "users"):
            if row.batch <= LAST_BATCH:
                place = row.source, row.key
                count[place] += 1
                ours = {"op": row.value and "upsert", "timestamp": row.time_ms, "batch_id": row.batch}
                result.append(((place, count[place]), {**_cells(row.value), **ours}, row.time_ms))
        return result

    return model(lines(before), lines(after))


def _snapshot(before: Sequence[Row], after: Sequence[Row], *_: Any) -> Expected:
    def lines(rows: Sequence[Row]) -> list[Line]:
        last = {row.key: row for row in _in_order(rows, "users") if row.batch <= LAST_BATCH}
        return [(key, {**_cells(row.value), **_ours(row)}, row.time_ms) for key, row in last.items() if row.value]

    return model(lines(before), lines(after))


def _ours(row: Row) -> dict[str, Any]:
    source = row.source
    ours = {"source_topic": source.topic, "source_partition": source.partition, "source_offset": source.offset}
    return {**ours, "timestamp": row.time_ms, "batch_id": row.batch}


def _windowed(before: Sequence[Row], after: Sequence[Row], from_ms: int | None, to_ms: int | None) -> Expected:
    def lines(rows: Sequence[Row]) -> list[Line]:
        last = {(row.key, row.window): row for row in _in_order(rows, "hours")}
        end = min(to_ms or 1 << 60, CLOSED_MS // DAY_MS * DAY_MS)
        return [
            (place, {**_cells(row.value), "timestamp": row.time_ms}, row.window[0])
            for place, row in last.items()
            if (from_ms or 0) <= row.window[0] < end
        ]

    return model(lines(before), lines(after))


MODELS: dict[str, Callable[..., Expected]] = {
    "orders": _appended("orders"),
    "users_changelog": _changelog,
    "users": _snapshot,
    "hours": _windowed,
    DEAD: _appended(DEAD),
}
