"""The table `catalog`: what it says of every kind of table, to readers of every engine, whoever writes it when."""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks import Doc, Pipeline, StreamsBuilder, files
from deltaworks.batch import BatchJob
from deltaworks.batch.definition import definition
from deltaworks.catalogue import table
from deltaworks.catalogue.entries import Entry, entries
from deltaworks.catalogue.table import Written, refresh, refresh_on_the_way
from deltaworks.control import heartbeat, retention
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import TableError, TopologyError
from deltaworks.lakehouse import catalog, cuts, repair
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.schema import Role
from deltaworks.quality import Outcome, Verdict, results
from deltaworks.settings import Settings
from tests.unit.lakehouse.lake import run as fill
from tests.unit.lakehouse.lake import task_tables, write_batch

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Rows = dict[str, dict[str, Any]]


class Sales(msgspec.Struct):
    day: dt.date
    country: Annotated[str, Doc("ISO code.")]


SALES = BatchJob(
    name="sales",
    pipelines=["shop"],
    compute=lambda day, orders: (day, orders),
    row=Sales,
    key=["day", "country"],
    doc="Sales",
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    return Settings.from_environment()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Sets the wall clock."""

    def is_now(time: datetime) -> None:
        monkeypatch.setattr("deltaworks.clock.utc_now", lambda: time)

    is_now(NOON)
    return is_now


def shop(settings: Settings, batches: int = 3) -> TableCommitter:
    """The tables of a pipeline, all as of its last batch."""
    committer, _ = fill(settings.tables, batches)
    committer.refresh_snapshots(force=True)
    committer.publish_cut()
    return committer


def rows(settings: Settings) -> Rows:
    found = DeltaTable(settings.tables / "catalog").to_pyarrow_table().to_pylist()
    assert len({row["name"] for row in found}) == len(found), "a table has two rows"
    return {row["name"]: row for row in found}


def version(settings: Settings) -> int:
    return DeltaTable(settings.tables / "catalog").version()


def verdict(name: str, of: str, outcome: Outcome, severity: str = "critical") -> Verdict:
    return Verdict(table=of, expectation=name, expects="e", why="w", severity=severity, outcome=outcome, rows=1)


def test_a_table_of_a_pipeline_is_a_row_with_all_that_a_reader_has_to_know(
    settings: Settings, now: Callable[[datetime], None]
) -> None:
    shop(settings)
    beat = Heartbeat(
        pipeline="shop", generation=1, query_id="q", state="running", pid=1, at=0.0, lag_records=7,
        next_offsets={"raw": {"10": 3, "2": 12}},
    )  # fmt: skip
    paths = PipelinePaths.of(settings, "shop")
    heartbeat.write(paths.heartbeat, beat)
    retention.note(paths, 1, "c0de")
    checks = [verdict("a", "counts", Outcome.PASSED), verdict("b", "counts", Outcome.FAILED)]
    results.append(settings.tables, "run", "shop", checks, NOON - MINUTE)

    refresh(settings)

    row = rows(settings)["counts"]
    cut = cuts.latest(settings.tables, "shop")
    assert cut is not None
    assert (row["kind"], row["grain"], row["pipeline"], row["code"]) == (
        "windowed",
        "a key and a window",
        "shop",
        "c0de",
    )
    assert (row["key"], row["partitioned_by"]) == (["key"], ["window_date"])
    assert "until is_final is true" in row["note"] and "batches" in row["as_of_means"]
    assert [(each["name"], each["type"], each["is_key"]) for each in row["columns"]][:3] == [
        ("key", "string", True),
        ("window_start", "timestamp", False),
        ("window_end", "timestamp", False),
    ]
    assert all(each["meaning"] for each in row["columns"] if each["name"].startswith("window"))
    assert (row["as_of"], row["batch_id"], row["lag_records"]) == (cut.at, 2, 7)
    assert row["offsets"] == [
        {"topic": "raw", "partition": 2, "next_offset": 12},
        {"topic": "raw", "partition": 10, "next_offset": 3},
    ]
    info = catalog.table(settings.tables, "counts")
    assert (row["rows"], row["size_bytes"], row["path"]) == (info.rows, info.size_bytes, str(info.path))
    assert (row["verdict"], row["checked_at"], row["written_at"]) == ("failed", NOON - MINUTE, NOON)
    assert row["example"] == "SELECT * FROM counts WHERE is_final ORDER BY window_start DESC LIMIT 10"


def test_every_table_is_in_it_whoever_has_made_it(settings: Settings) -> None:
    shop(settings)
    definition(SALES).create(settings.tables)
    write_deltalake(settings.tables / "theirs", pa.table({"a": [1], "b": [[1, 2]]}))
    results.append(settings.tables, "run", "shop", [verdict("a", "orders", Outcome.PASSED)], NOON)

    refresh(settings)

    found = rows(settings)
    assert {name: (row["kind"], row["pipeline"], row["verdict"]) for name, row in found.items()} == {
        "catalog": ("catalog", None, None),
        "counts": ("windowed", "shop", None),
        "dead_letters": ("dead letters", "shop", None),
        "orders": ("append", "shop", "passed"),
        "quality_failures": ("quality", None, None),
        "quality_results": ("quality", None, None),
        "sales": ("batch", None, None),
        "theirs": (None, None, None),
        "users": ("snapshot", "shop", None),
        "users_changelog": ("changelog", "shop", None),
    }
    assert (found["sales"]["key"], found["sales"]["grain"]) == (["day", "country"], "a day and country")
    assert found["sales"]["columns"][1]["meaning"] == "ISO code."
    assert all(row["note"] and row["as_of_means"] and row["as_of"] for name, row in found.items() if name != "theirs")
    assert all(each["meaning"] for name in found if name.startswith("quality") for each in found[name]["columns"])


def test_it_describes_itself(settings: Settings) -> None:
    shop(settings)

    refresh(settings)

    row = rows(settings)["catalog"]
    fields = DeltaTable(settings.tables / "catalog").schema().fields
    assert [each["name"] for each in row["columns"]] == [field.name for field in fields]
    assert all(each["meaning"] for each in row["columns"])
    assert (row["key"], row["rows"], row["path"]) == (["name"], len(rows(settings)), str(settings.tables / "catalog"))


def test_there_are_no_other_tables_yet(settings: Settings) -> None:
    assert refresh(settings).tables == 1
    assert list(rows(settings)) == ["catalog"]


def by_delta_rs(path: Path) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]


def by_duckdb(path: Path) -> list[dict[str, Any]]:
    with catalog.duckdb_connection(path.parent) as connection:
        return connection.sql("SELECT * FROM catalog").to_arrow_table().to_pylist()  # type: ignore[no-any-return]


def by_polars_or_arrow(path: Path) -> list[dict[str, Any]]:
    """Polars is no dependency of ours; without it, as it would read the files."""
    if find_spec("polars") is None:
        return dataset(path).to_table().to_pylist()  # type: ignore[no-any-return]
    return import_module("polars").scan_delta(str(path)).collect().to_dicts()  # type: ignore[no-any-return]


@pytest.mark.parametrize("read", [by_delta_rs, by_duckdb, by_polars_or_arrow])
def test_every_engine_reads_the_same(settings: Settings, read: Callable[[Path], list[dict[str, Any]]]) -> None:
    shop(settings)
    refresh(settings)
    refresh(settings)

    protocol = DeltaTable(settings.tables / "catalog").protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features and not protocol.writer_features
    assert {row["name"]: row for row in read(settings.tables / "catalog")} == rows(settings)


def test_a_refresh_is_one_commit(settings: Settings) -> None:
    shop(settings)
    first = refresh(settings)

    written = [refresh(settings) for _ in range(3)]

    assert [each.version for each in written] == [first.version + 1, first.version + 2, first.version + 3]
    assert version(settings) == written[-1].version
    assert all(each.is_new and each.tables == 6 for each in written)


def test_what_only_moves_is_not_written_more_often_than_wanted(
    settings: Settings, now: Callable[[datetime], None]
) -> None:
    committer, expected = fill(settings.tables, 3)
    before = refresh(settings)
    committer.commit(3, write_batch(task_tables(settings.tables), 3, expected))
    now(NOON + 14 * MINUTE)

    again = refresh(settings, every=15 * MINUTE)

    assert again == replace(before, is_new=False)
    assert version(settings) == before.version
    now(NOON + 15 * MINUTE)
    assert refresh(settings, every=15 * MINUTE).is_new
    assert rows(settings)["orders"]["rows"] == len(expected.orders)


def test_a_table_that_is_new_or_says_something_else_is_written_at_once(
    settings: Settings, now: Callable[[datetime], None]
) -> None:
    shop(settings)
    refresh(settings)

    write_deltalake(settings.tables / "theirs", pa.table({"a": [1]}))
    assert refresh(settings, every=15 * MINUTE).is_new
    DeltaTable(settings.tables / "theirs").alter.set_column_metadata("a", {"comment": "a number"})
    assert refresh(settings, every=15 * MINUTE).is_new
    results.append(settings.tables, "run", "shop", [verdict("a", "theirs", Outcome.PASSED)], NOON)
    assert refresh(settings, every=15 * MINUTE).is_new

    assert not refresh(settings, every=15 * MINUTE).is_new
    row = rows(settings)["theirs"]
    assert (row["columns"][0]["meaning"], row["verdict"]) == ("a number", "passed")


def test_a_clock_that_was_set_back_does_not_keep_it_from_being_written(
    settings: Settings, now: Callable[[datetime], None]
) -> None:
    refresh(settings)
    now(NOON - timedelta(days=1))

    assert refresh(settings, every=15 * MINUTE).is_new


def test_all_who_write_at_once_leave_each_table_once(settings: Settings) -> None:
    shop(settings)

    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(lambda _: refresh(settings), range(8)))

    assert len(rows(settings)) == 6
    assert len({each.version for each in written}) == 8


def is_locked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        return not files.lock(handle)
    finally:
        os.close(handle)


def test_nobody_else_fills_the_table_while_one_does(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta takes two writers that both find an empty table: it would have all rows twice."""
    others = list[Future[Written]]()

    def meanwhile(to: DeltaTable, *arguments: Any, **options: Any) -> None:
        if not others:
            others.append(pool.submit(refresh, settings))
            if not is_locked(settings.tables / "catalog"):
                others[0].result()
        write_deltalake(to, *arguments, **options)

    monkeypatch.setattr("deltaworks.catalogue.table.write_deltalake", meanwhile)

    with ThreadPoolExecutor(1) as pool:
        mine = refresh(settings)
        assert others[0].result().version == mine.version + 1

    assert list(rows(settings)) == ["catalog"]


def test_whoever_does_not_know_of_the_lock_is_not_overwritten_unseen(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(settings)
    refresh(settings)
    hosts, looks = ["another host"], 0

    def somebody_is_faster(to: DeltaTable, *arguments: Any, **options: Any) -> None:
        if hosts and hosts.pop():
            write_deltalake(DeltaTable(settings.tables / "catalog"), *arguments, **options)
        write_deltalake(to, *arguments, **options)

    def seen(of: Settings) -> list[Entry]:
        nonlocal looks
        looks += 1
        return entries(of)

    monkeypatch.setattr("deltaworks.catalogue.table.write_deltalake", somebody_is_faster)
    monkeypatch.setattr("deltaworks.catalogue.table.entries", seen)
    monkeypatch.setattr(table, "_PAUSE_S", 0.0)
    before = version(settings)

    refresh(settings)

    assert (version(settings), looks) == (before + 2, 2)
    assert len(rows(settings)) == 6


def test_a_table_of_this_name_that_is_somebody_elses_stays(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    write_deltalake(settings.tables / "catalog", pa.table({"article": [1]}))

    with pytest.raises(TableError, match="is not the catalog of all tables"):
        refresh(settings)
    with caplog.at_level(logging.WARNING):
        refresh_on_the_way(settings)

    assert DeltaTable(settings.tables / "catalog").to_pyarrow_table().to_pylist() == [{"article": 1}]
    assert "is not the catalog of all tables" in caplog.text


def test_that_of_another_version_is_made_anew(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shop(settings)
    fewer = pa.schema([field for field in table.DEFINITION.columns if field.name != "example"])
    properties = {**table.DEFINITION.properties, "deltaworks.catalog-format": "0"}
    replace(table.DEFINITION, columns=fewer, properties=properties).create(settings.tables)
    write_deltalake(
        settings.tables / "catalog", pa.Table.from_pylist([{"name": "old"}], schema=fewer), mode="overwrite"
    )

    refresh(settings)

    found = DeltaTable(settings.tables / "catalog")
    assert "old" not in rows(settings) and rows(settings)["orders"]["example"]
    assert found.metadata().configuration["deltaworks.catalog-format"] == "1"
    assert refresh(settings).version == found.version() + 1


def test_old_files_go(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_TIDY", 1)
    refresh(settings)
    (stranger := settings.tables / "catalog" / "part-cut-off.parquet").write_bytes(b"")
    os.utime(stranger, (0, 0))

    refresh(settings)

    assert not stranger.exists()
    assert list(rows(settings)) == ["catalog"]


def test_no_command_takes_it_for_a_table_of_a_pipeline(settings: Settings) -> None:
    shop(settings)
    refresh(settings)

    assert catalog.log_of(settings.tables, "catalog").pipeline is None
    with pytest.raises(TableError, match="is not written by a pipeline"):
        repair.plan(settings.tables, "catalog")
    assert table.KIND not in {role.value for role in Role}


@pytest.mark.parametrize("name", ["catalog", "Catalog", "quality_results", "quality_failures"])
def test_no_pipeline_writes_a_table_of_this_name(name: str) -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("raw", key=str, value=str).to_delta(name)

    with pytest.raises(TopologyError, match=f"'{name}' cannot be the name of a Delta table"):
        Pipeline(name="shop", topology=topology).plan()
