"""A refresh rewrites the files that its keys fall into, and any sequence of changes leaves the last row of each key."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltaworks import faults
from deltaworks.kernel.records import Coordinates
from deltaworks.lakehouse import key_positions, layout, parquet, snapshot_files
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.layout import RangeName
from deltaworks.lakehouse.log import Commit, DeltaLog
from deltaworks.lakehouse.schema import TableSchema
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import NewFile
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind

LIMIT, LARGE = 8, 64


class Place(msgspec.Struct, frozen=True):
    """A key of several columns."""

    country: str | None
    number: int | None
    weight: float | None


def sink(key: Any) -> DeltaSink:
    return DeltaSink(name="n", table="users", kind=TableKind.CHANGELOG, key=key, value=str)


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(snapshot_files, "RANGE_ROWS", LIMIT)
    monkeypatch.setattr(snapshot_files, "LARGE_ROWS", LARGE)
    monkeypatch.setattr(snapshot_files, "DENSE_ROWS", 4)
    yield
    faults.arm(None)


def identity(key: Any) -> bytes:
    """All bits of a key, as its group in a table."""
    cells = msgspec.structs.astuple(key) if isinstance(key, Place) else (key,)
    return repr([struct.pack("<d", cell) if isinstance(cell, float) else cell for cell in cells]).encode()


class Table:
    """One KTable, and its rows as a model in plain Python has them."""

    def __init__(self, root: Path, key: Any = str) -> None:
        self.root, self.sink = root, sink(key)
        self.batch_id = -1
        self.model: list[dict[bytes, tuple[Any, str]]] = []
        """After each batch: identity -> key, value."""
        self.generation = 0
        self.start()

    def start(self) -> None:
        """Opens the tables, as after a crash."""
        faults.arm(None)
        self.generation += 1
        self.committer = TableCommitter(self.root, "app", "q", [self.sink])
        self.committer.open(self.generation)
        self.tasks = [TaskTables(self.root, [self.sink], None, stage=0, task=task) for task in range(2)]

    def batch(self, changes: Sequence[tuple[Any, str | None]]) -> None:
        self.batch_id += 1
        rows = dict(self.model[-1]) if self.model else {}
        for tables in self.tasks:
            tables.begin(self.batch_id)
        for number, (key, value) in enumerate(changes):
            place = identity(key)
            rows.pop(place, None)
            if value is not None:
                rows[place] = key, value
            self.tasks[place[-3] % 2].rows("users").add((key, value, 1000, Coordinates("users", 0, number)))
        self.model.append(rows)
        self.committer.commit(self.batch_id, [write for tables in self.tasks for write in tables.finish()])

    def upsert(self, numbers: Sequence[int], value: str = "x") -> None:
        self.batch([(f"k{number:04d}", value) for number in numbers])

    def refresh(self) -> None:
        self.committer.refresh_snapshots(force=True)

    @property
    def log(self) -> DeltaLog:
        return self.committer.tables["users"].log

    @property
    def schema(self) -> TableSchema:
        return self.committer.tables["users"].schema

    @property
    def ranges(self) -> list[RangeName]:
        """The files, which all must be ours, in order."""
        found = [RangeName.of(path) for path in self.log.files]
        assert None not in found
        return sorted((each for each in found if each is not None), key=lambda each: each.start)

    def check(self) -> None:
        """The snapshot has the rows of the batch that it shows, each in the file that its name says."""
        as_of = self.committer.snapshot("users").as_of_batch
        rows = parquet.read_all(self.root, self.schema, list(self.log.files))
        wanted = self.model[as_of] if as_of >= 0 else {}
        assert sorted(self.listed(rows)) == sorted((place, value) for place, (_, value) in wanted.items())
        if any(RangeName.of(path) is None for path in self.log.files):
            return
        ranges = self.ranges
        ends = [each.start for each in ranges[1:]]
        for number, each in enumerate(ranges):
            rows = parquet.read(self.root, self.schema, each.path)
            assert rows.num_rows == each.rows == self.log.files[each.path].rows
            found = key_positions.positions(rows.select(self.schema.key_names))
            assert number == 0 or min(found) >= each.start
            assert number == len(ends) or max(found) < ends[number]
            assert each.rows <= LARGE or len(set(found)) < each.rows

    def listed(self, rows: pa.Table) -> list[tuple[bytes, str]]:
        cells = [rows.column(name).to_pylist() for name in self.schema.key_names]
        made = (lambda *key: Place(*key)) if self.sink.key is Place else (lambda key: key)
        return [
            (identity(made(*key)), value) for *key, value in zip(*cells, rows.column("value").to_pylist(), strict=True)
        ]

    def old_layout(self) -> None:
        """Puts the rows into one file, as earlier versions did."""
        self.log.catch_up()
        rows = parquet.read_all(self.root, self.schema, list(self.log.files))
        name = layout.part_name("snapshot", self.batch_id, 0, self.committer.tables["users"].tag)
        added = [parquet.write(self.root, self.schema, name, rows)] if rows.num_rows else []
        self.committer.replace("users", Commit(added=added, removed=list(self.log.files)))


def test_a_change_rewrites_its_file_only(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(100))
    table.refresh()
    before = {each.path for each in table.ranges}
    table.batch([("k0050", "new"), ("k0051", None)])
    table.refresh()
    after = {each.path for each in table.ranges}

    assert len(before) > 10
    assert len(before - after) <= 2
    assert len(after - before) <= 2
    table.check()


def test_keys_that_grow_fill_the_last_file_and_leave_the_others_alone(tmp_path: Path) -> None:
    table = Table(tmp_path)
    written = 0
    for number in range(60):
        table.upsert([number])
        before = set(table.log.files)
        table.refresh()
        removed = before - set(table.log.files)
        assert len(removed) <= 1
        written += len(set(table.log.files) - before)
    table.check()

    assert all(each.rows == LIMIT * 3 // 4 for each in table.ranges[:-1])
    assert written < 90


def test_files_that_have_shrunk_become_one_with_their_neighbours(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(200))
    table.refresh()
    for number in range(200):
        if number % 20:
            table.batch([(f"k{number:04d}", None)])
            if number % 7 == 0:
                table.refresh()
    table.refresh()
    table.check()

    assert len(table.model[-1]) == 10
    assert len(table.ranges) <= 6


def test_files_are_large_where_many_keys_change_and_small_again_where_few_do(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(300))
    table.refresh()
    small = len(table.ranges)
    for value in ("1", "2"):
        table.upsert(range(0, 150, 2), value)
        table.refresh()
        table.check()
    dense = [each.rows for each in table.ranges]
    for number in range(0, 150, 9):
        table.upsert([number], "3")
        table.refresh()
    table.check()

    assert small >= 300 // LIMIT
    assert max(dense) > 4 * LIMIT
    assert len(dense) < small * 3 // 4
    assert dense.count(LIMIT * 3 // 4) > 10, "the others stay as they are"
    assert max(each.rows for each in table.ranges) <= LIMIT


def test_a_table_may_become_empty_and_begin_again(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(30))
    table.refresh()
    table.batch([(f"k{number:04d}", None) for number in range(30)])
    table.refresh()
    assert table.log.files == {}
    table.batch([("k0001", None)])
    table.refresh()
    assert table.committer.stale_snapshots == []
    table.upsert([3, 1, 2])
    table.refresh()
    table.check()


def test_a_delete_of_a_key_that_is_not_there_rewrites_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(0, 60, 2))
    table.refresh()
    before = dict(table.log.files)
    table.batch([("k0031", None)])
    table.refresh()

    assert table.log.files == before
    assert table.committer.stale_snapshots == []


def test_large_rows_are_in_files_with_fewer_rows(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(LIMIT), "x" * 10_000)
    table.refresh()
    table.check()

    assert len(table.ranges) >= LIMIT - 1


def test_larger_tables_have_larger_files() -> None:
    sizes = [snapshot_files.largest(rows) for rows in (0, 3_999_999, 4_000_000, 15_999_999, 16_000_000)]
    assert sizes == [LIMIT, LIMIT, 2 * LIMIT, 2 * LIMIT, 4 * LIMIT]


def test_keys_at_one_position_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "crc32", lambda key, value=0: 7)
    table = Table(tmp_path)
    keys = ["x" * 30 + f"{number}" for number in range(20)]
    table.batch([("a", "1"), ("z", "1"), *((key, "1") for key in keys)])
    table.refresh()
    table.batch([(key, "2") for key in keys[::3]] + [("a", "2"), (keys[1], None)])
    table.refresh()
    table.check()

    assert [each.rows for each in table.ranges] == [21, 1] or max(each.rows for each in table.ranges) >= 19


@pytest.mark.parametrize(
    "how", ["earlier version", "optimize", "z-order", "another version", "some of them", "two with one start"]
)
def test_files_of_another_layout_are_written_again(tmp_path: Path, how: str) -> None:
    table = Table(tmp_path)
    table.upsert(range(50))
    table.refresh()
    match how:
        case "earlier version":
            table.old_layout()
        case "optimize":
            DeltaTable(tmp_path / "users").optimize.compact()
        case "z-order":
            DeltaTable(tmp_path / "users").optimize.z_order(["key"])
        case "another version":
            renamed(table, lambda path: path.replace("-v1-", "-v2-"))
        case "some of them":
            foreign = [each.path for each in table.ranges[2:5]]
            renamed(table, lambda path: f"part-{foreign.index(path)}.parquet" if path in foreign else path)
        case _:
            ranges = table.ranges
            renamed(table, lambda path: path.replace(ranges[3].start.hex(), ranges[4].start.hex()))
    table.start()
    table.batch([("k0007", None), ("k0008", "new"), ("k0099", "new")])
    table.refresh()
    table.check()

    assert len(table.ranges) > 5


def renamed(table: Table, name: Any) -> None:
    """Gives files other names."""
    paths = {path: name(path) for path in table.log.files if name(path) != path}
    entries = {path: table.log.files[path] for path in paths}
    for old, new in paths.items():
        (table.log.path / old).rename(table.log.path / new)
    added = [NewFile(paths[path], e.size_bytes, e.rows, e.statistics or "") for path, e in entries.items()]
    table.committer.replace("users", Commit(added=added, removed=list(paths)))
    table.committer.close()


def test_a_refresh_of_a_history_that_was_replaced_meanwhile_is_dropped(tmp_path: Path) -> None:
    """As by a publication, into a table without files: nothing that the refresh replaces is gone."""
    table = Table(tmp_path)
    table.upsert(range(20), "old")
    snapshot = table.committer.snapshot("users")
    table.committer.refresh_snapshots(eager=True)
    table.committer.settle()
    rows = parquet.read_all(tmp_path, table.committer.tables["users_changelog"].schema, list(changelog_of(table).files))
    files = snapshot.write(table.schema.file.empty_table(), rows, -1, 0)
    table.committer.replace("users", Commit(added=files, transactions=snapshot.transactions(0, 1)))

    assert table.committer.refresh_snapshots() == []
    table.refresh()
    table.check()


def changelog_of(table: Table) -> DeltaLog:
    return table.committer.tables["users_changelog"].log


def test_housekeeping_leaves_the_files_alone(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(0, 800, 2))
    table.refresh()
    before = set(table.log.files)
    table.committer.close()
    table.start()
    housekeeping = table.committer.tables["users"].housekeeping
    for _ in range(2):
        housekeeping.after_commit([])
        table.committer.settle()

    assert len(before) > 32
    assert set(table.log.files) == before


def test_it_is_a_plain_table_for_every_reader(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.upsert(range(100))
    table.refresh()
    table.batch([("k0050", "new"), ("k0051", None)])
    table.refresh()

    delta = DeltaTable(tmp_path / "users")
    assert (delta.protocol().min_reader_version, delta.protocol().min_writer_version) == (1, 2)
    assert delta.metadata().partition_columns == []
    rows = delta.to_pyarrow_table()
    assert sorted(rows.column("key").to_pylist()) == sorted(f"k{n:04d}" for n in range(100) if n != 51)
    one = delta.to_pyarrow_table(filters=[("key", "=", "k0050")])
    assert one.column("value").to_pylist() == ["new"]


@dataclass
class Keys:
    """A key type, and some keys."""

    kind: Any
    some: st.SearchStrategy[Any] = field(repr=False)


LONG = "the-same-beginning-of-many-characters-"
TEXTS = st.sampled_from([f"k{n}" for n in range(40)] + [f"{LONG}{n}" for n in range(20)] + ["", "\0", "k\0", "ü"])
KEYS = {
    "text": Keys(str, TEXTS),
    "integer": Keys(int, st.integers(-30, 30) | st.sampled_from([-(2**63), 2**63 - 1])),
    "optional": Keys(int | None, st.none() | st.integers(0, 20)),
    "bytes": Keys(bytes, st.binary(max_size=2)),
    "float": Keys(float, st.sampled_from([0.0, -0.0, 1.5, -1.5, float("inf"), float("nan"), *map(float, range(30))])),
    "several columns": Keys(
        Place,
        st.builds(
            Place,
            st.none() | st.sampled_from(["", "DE", "FR"]),
            st.none() | st.integers(-2, 2),
            st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.0]),
        ),
    ),
}
POINTS = ("snapshot.written", "snapshot.before_commit", "snapshot.after_commit")


def steps(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    changes = st.lists(st.tuples(keys, st.none() | st.sampled_from(["1", "2", "3"])), max_size=30)
    many = st.lists(keys, min_size=20, max_size=60).map(lambda some: [(key, "0") for key in some])
    batches = st.tuples(st.just("batch"), changes | many)
    others = ["refresh", "refresh", "begin", "crash", "restart", "optimize", "earlier version"]
    return st.lists(batches | st.tuples(st.sampled_from(others), st.integers(0, 2)), min_size=3, max_size=14)


@pytest.mark.parametrize("name", KEYS)
def test_any_sequence_leaves_the_last_row_per_key(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = KEYS[name]

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps(keys.some))
    def run(sequence: list[tuple[str, Any]]) -> None:
        table = Table(tmp_path_factory.mktemp("lake"), keys.kind)
        for step, detail in itertools.chain(sequence, [("refresh", 0)]):
            take(table, step, detail)
        assert table.committer.stale_snapshots == []
        table.check()
        table.committer.close()

    run()


def take(table: Table, step: str, detail: Any) -> None:
    match step:
        case "batch":
            table.batch(detail)
        case "refresh":
            table.refresh()
            assert table.committer.stale_snapshots == []
            table.check()
        case "begin":
            table.committer.refresh_snapshots(eager=True)
        case "crash":
            faults.arm(lambda reached: crash(reached, POINTS[detail]))
            with suppress(Crash):
                table.refresh()
            table.committer.close()
            table.start()
        case "restart":
            table.committer.close()
            table.start()
        case "optimize":
            table.committer.settle()
            DeltaTable(table.log.path).optimize.compact()
        case _:
            table.old_layout()


def crash(reached: str, point: str) -> None:
    if reached.startswith(point):
        raise Crash
