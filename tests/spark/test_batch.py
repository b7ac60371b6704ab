"""Batch jobs on real tables and real Spark: the example against its recomputation, repeated, refused and cut off."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.batch import BatchJob, delta_tables, jobs, running
from deltaworks.batch.running import DayResult
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, TableError, TerminalError, TransientError
from deltaworks.lakehouse import catalog, cuts, described
from deltaworks.quality import of_day
from deltaworks.settings import Settings
from jobs.recomputed.results import read_batches, records_table
from jobs.sample_data.kafka import PARTITIONS
from tests.system.data_defects.run import run
from tests.unit.jobs.recomputing import rows_of

ROOT = Path(__file__).parents[2]
NAME, RECORDS, SEED = "daily_sales", 1_500, 3
FIRST, SECOND = dt.date(2026, 3, 1), dt.date(2026, 3, 2)


class Count(msgspec.Struct):
    day: dt.date
    item: str
    orders: int
    revenue: Decimal


def counted(day: dt.date, enriched_orders: DataFrame) -> DataFrame:
    of_day = enriched_orders.where(F.to_date("timestamp") == F.lit(day))
    columns = [F.count("*").alias("orders"), F.sum("amount").alias("revenue")]
    return of_day.groupBy("item").agg(*columns).withColumn("day", F.lit(day))


def job(**given: Any) -> BatchJob:
    usual: dict[str, Any] = {"name": "items", "pipelines": ["orders"], "compute": counted, "row": Count}
    return BatchJob(**{**usual, "key": ["day", "item"], "doc": "Orders of an item", **given})


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("home")
    for name in ("orders", "inventory"):
        run(name, home, records=RECORDS, seed=SEED)
    return replace(Settings.from_environment({"DELTAWORKS_PROJECT": str(ROOT)}), home=home, cores=1)


@pytest.fixture(scope="module")
def spark(settings: Settings) -> Iterator[SparkSession]:
    """One session for all tests, in a JVM of its own: one that earlier tests have left does not have the jars."""
    earlier = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    with delta_tables.opened(settings, "tests", settings.home / "scratch") as session:
        gateway: Any = session.sparkContext._gateway
        yield session
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
    SparkContext._gateway, SparkContext._jvm = earlier


class Bench:
    """Runs jobs in the session of the tests."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings, self._monkeypatch = settings, monkeypatch

    def run(self, job: BatchJob | None, *days: dt.date, suite: dict[str, Any] | None = None) -> list[DayResult]:
        name = NAME if job is None else job.name
        if job is not None:
            self._monkeypatch.setattr(jobs, "load", lambda settings, name: job)
        if suite is not None:
            (folder := self.settings.jobs / "quality").mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.py").touch()
            self._monkeypatch.setattr("deltaworks.quality.suites.load", lambda settings, name: suite)
        return running.run(self.settings, name, days, run_id="test")

    def rows(self, name: str = "items") -> list[dict[str, Any]]:
        found = DeltaTable(self.settings.tables / name).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: tuple(map(str, row.values())))

    def version(self, name: str = "items") -> int | None:
        path = self.settings.tables / name
        return int(DeltaTable(path).version()) if (path / "_delta_log").is_dir() else None


@pytest.fixture
def bench(settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    class Kept:
        def __enter__(self) -> SparkSession:
            return spark

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(delta_tables, "opened", lambda *_: Kept())
    yield Bench(settings, monkeypatch)
    for name in ("items", NAME):
        if (path := settings.tables / name).is_dir():
            path.rename(tmp_path / name)


def expected(settings: Settings) -> list[dict[str, Any]]:
    """The rows of all days, from the records in the topics, in SQL."""
    third = duckdb.connect()
    third.execute("SET TimeZone = 'UTC'")
    for name, table in (("orders", "enriched_orders"), ("inventory", "inventory_customer_orders")):
        data: Any = importlib.import_module(f"jobs.sample_data.{name}")
        recomputation = importlib.import_module(f"jobs.recomputed.{name}").recomputation
        rows = rows_of(data.records(RECORDS, SEED))
        records = records_table((r.topic, r.partition, r.offset, r.timestamp_ms, r.key, r.value, []) for r in rows)
        connection = duckdb.connect()
        batches = read_batches(PipelinePaths.of(settings, name).batches)
        recomputation.recompute(connection, records, *batches, PARTITIONS)
        third.register(f"expected {table}", connection.sql(f'FROM "expected {table}"').to_arrow_table())
    third.execute((ROOT / "jobs" / "recomputed" / f"{NAME}.sql").read_text())
    rows = third.sql(f'FROM "expected {NAME}"').to_arrow_table().to_pylist()
    return sorted(rows, key=lambda row: tuple(map(str, row.values())))


def test_daily_sales_are_those_that_sql_recomputes_from_the_topics(bench: Bench) -> None:
    wanted = expected(bench.settings)
    days = sorted({row["day"] for row in wanted})

    found = bench.run(None, *days)

    assert len(days) > 1
    assert [(each.day, each.version) for each in found] == [(day, n) for n, day in enumerate(days, 1)]
    assert all(verdict.passed for each in found for verdict in each.verdicts)
    assert sum(len(each.verdicts) for each in found) >= 10 * len(days)
    assert bench.rows(NAME) == wanted


def test_a_day_that_is_computed_again_replaces_itself_and_nothing_else(bench: Bench) -> None:
    bench.run(job(), FIRST, SECOND)
    before = bench.rows()

    again = bench.run(job(), FIRST)

    assert [each.version for each in again] == [3]
    assert bench.rows() == before
    assert {row["day"] for row in before} == {FIRST, SECOND}


def test_the_history_names_the_run_and_what_it_has_read(bench: Bench) -> None:
    bench.run(job(), FIRST)
    cut = cuts.latest(bench.settings.tables, "orders")
    assert cut is not None

    note = json.loads(DeltaTable(bench.settings.tables / "items").history(1)[0]["userMetadata"])

    read = {"query": cut.query, "batch": cut.batch_id, "tables": {"enriched_orders": cut.tables["enriched_orders"]}}
    assert note == {"format": 1, "job": "items", "day": "2026-03-01", "run": "test", "read": {"orders": read}}


def test_it_reads_the_tables_as_of_the_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run(job(), FIRST, SECOND)
    all_rows = bench.rows()
    lines = b"".join(file.read_bytes() for file in cuts.folder(bench.settings.tables, "orders").glob("*.jsonl"))
    newest = msgspec.json.decode(lines.splitlines()[-1], type=cuts.Cut)
    middle = {name: version // 2 for name, version in newest.tables.items()}
    earlier = msgspec.structs.replace(newest, tables=middle)
    monkeypatch.setattr(cuts, "latest", lambda root, pipeline: earlier)

    bench.run(job(), FIRST, SECOND)

    table = DeltaTable(bench.settings.tables / "enriched_orders", version=middle["enriched_orders"])
    assert sum(row["orders"] for row in bench.rows()) == table.count() < sum(row["orders"] for row in all_rows)


def test_the_table_says_what_it_is(bench: Bench) -> None:
    bench.run(job(), FIRST)

    found = described.described(bench.settings.tables, "items")

    assert (found.kind, found.grain, found.description) == ("batch", "a day and item", "Orders of an item")
    assert [column.name for column in found.columns if column.is_key] == ["day", "item"]
    assert catalog.table(bench.settings.tables, "items").rows == len(bench.rows())


def test_a_run_brings_the_catalog_up_to_date_and_spark_reads_it(bench: Bench, spark: SparkSession) -> None:
    shutil.rmtree(bench.settings.tables / "catalog", ignore_errors=True)  # of an earlier test; counts may be older
    bench.run(job(), FIRST)

    catalog_rows = spark.read.format("delta").load(str(bench.settings.tables / "catalog")).collect()

    rows = {row["name"]: row for row in catalog_rows}
    items = rows["items"]
    assert (items["kind"], items["key"], items["verdict"]) == ("batch", ["day", "item"], "passed")
    assert [column["name"] for column in items["columns"] if column["is_key"]] == ["day", "item"]
    assert items["rows"] == len(bench.rows()) and items["as_of"] <= items["written_at"]
    assert rows["order_counts"]["pipeline"] == "orders" and rows["order_counts"]["batch_id"] is not None


def test_every_reader_reads_it(bench: Bench) -> None:
    bench.run(job(), FIRST)

    protocol = DeltaTable(bench.settings.tables / "items").protocol()

    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


@pytest.mark.slow
def test_old_files_go_and_rows_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_tables, "_LONG_AGO", 2)
    bench.run(job(), FIRST)
    path = bench.settings.tables / "items"
    (stranger := path / "day=2026-03-01" / "part-cut-off.parquet").write_bytes(b"")
    os.utime(stranger, (0, 0))

    bench.run(job(), SECOND)

    assert not stranger.exists()
    assert {row["day"] for row in bench.rows()} == {FIRST, SECOND}
    assert DeltaTable(path, version=1).to_pyarrow_table().num_rows > 0, "versions of the last days stay"


def test_a_day_without_rows_empties_it(bench: Bench) -> None:
    bench.run(job(), FIRST, SECOND)

    found = bench.run(job(compute=lambda day, enriched_orders: counted(day, enriched_orders.limit(0))), FIRST)

    assert [(each.rows, each.version) for each in found] == [(0, 3)]
    assert {row["day"] for row in bench.rows()} == {SECOND}


def elsewhere(day: dt.date, enriched_orders: DataFrame) -> DataFrame:
    return counted(day, enriched_orders).withColumn("day", F.lit(day + dt.timedelta(days=1)))


def twice(day: dt.date, enriched_orders: DataFrame) -> DataFrame:
    rows = counted(day, enriched_orders)
    return rows.union(rows.limit(1))


def unnamed(day: dt.date, enriched_orders: DataFrame) -> DataFrame:
    return counted(day, enriched_orders).withColumn("revenue", F.lit(None).cast("decimal(38,18)"))


@pytest.mark.parametrize(
    ("compute", "expects"),
    [(elsewhere, "rows are of 2026-03-01"), (twice, "one row per day, item"), (unnamed, "revenue")],
)
def test_rows_that_break_what_always_holds_change_nothing(bench: Bench, compute: Any, expects: str) -> None:
    bench.run(job(), FIRST)
    before = bench.rows()

    (found,) = bench.run(job(compute=compute), FIRST, SECOND)

    broken = [verdict for verdict in found.verdicts if not verdict.passed]
    assert found.version is None, "and the second day was not begun"
    assert len(broken) == 1
    assert expects in broken[0].expects
    assert (bench.version(), bench.rows()) == (1, before)


def test_rows_that_fail_the_suite_change_nothing_and_the_verdict_is_kept(bench: Bench, tmp_path: Path) -> None:
    import great_expectations.expectations as gxe

    suite = {"items": [gxe.ExpectColumnValuesToBeBetween(column="orders", max_value=0, meta={"why": "None may be."})]}
    bench.settings = replace(bench.settings, project=tmp_path)

    (found,) = bench.run(job(), FIRST, suite=suite)

    assert (found.version, bench.version()) == (None, None), "not even a table was made"
    results = DeltaTable(bench.settings.tables / "quality_results").to_pyarrow_table().to_pylist()
    mine = [row for row in results if row["pipeline"] == "items" and row["why"] == "None may be."]
    assert [(row["run_id"], row["outcome"]) for row in mine] == [("test", "failed")]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"compute": lambda day, enriched_orders: None}, ConfigurationError, "returned NoneType"),
        ({"compute": lambda day, enriched_orders: enriched_orders}, ConfigurationError, "lacks day, orders, revenue"),
        (
            {"compute": lambda day, t=None: None, "pipelines": ["orders"]},
            ConfigurationError,
            "reads a table 't', which orders do(.|\n)*enriched_orders",
        ),
        ({"pipelines": ["missing"]}, ConfigurationError, "tables of 'missing', of which there are none yet"),
        (
            {"compute": lambda day, enriched_orders: counted(day, enriched_orders).withColumn("orders", F.lit(1.5))},
            ConfigurationError,
            r"orders is (double|decimal\(2,1\)), but the table has bigint",
        ),
        (
            {"compute": lambda day, enriched_orders: counted(day, enriched_orders.select("nothing"))},
            TerminalError,
            "nothing",
        ),
    ],
)
def test_a_job_that_does_not_fit_says_so_and_makes_no_table(
    bench: Bench, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bench.run(job(**given), FIRST)

    assert bench.version() is None


def test_a_table_of_somebody_else_is_not_touched(bench: Bench) -> None:
    table = job(name="order_counts")
    before = bench.version(table.name)
    assert before is not None

    with pytest.raises(TableError, match="is not from a batch job"):
        bench.run(table, FIRST)

    assert bench.version(table.name) == before


def test_a_table_with_other_columns_is_not_touched(bench: Bench) -> None:
    bench.run(job(), FIRST)

    class More(Count):
        more: str | None = None

    with pytest.raises(TableError, match="has other columns than the job"):
        bench.run(job(row=More), FIRST)
    assert bench.version() == 1


def test_a_file_that_was_removed_meanwhile_is_worth_another_try(bench: Bench, tmp_path: Path) -> None:
    def vanishing(day: dt.date, enriched_orders: DataFrame) -> DataFrame:
        enriched_orders.write.parquet(str(tmp_path / "rows"))
        rows = enriched_orders.sparkSession.read.parquet(str(tmp_path / "rows"))
        for file in (tmp_path / "rows").glob("*.parquet"):
            file.unlink()
        return counted(day, rows)

    with pytest.raises(TransientError, match="removed meanwhile; nothing was changed"):
        bench.run(job(compute=vanishing), FIRST)

    assert bench.version() is None


def test_an_old_version_is_read_if_the_cut_names_it(bench: Bench) -> None:
    bench.run(job(), FIRST)
    before, log = bench.rows(), bench.settings.tables / "enriched_orders" / "_delta_log"
    for file in log.iterdir():
        os.utime(file, (0, 0))
    last = max(int(file.stem) for file in log.glob("*.json"))
    (log / f"{last + 1:020d}.json").write_text('{"commitInfo":{"timestamp":0,"operation":"WRITE"}}')

    bench.run(job(), FIRST)

    assert bench.rows() == before


def test_what_a_killed_run_has_left_is_in_nobodys_way(bench: Bench) -> None:
    left = bench.settings.home / "batch" / "items" / "2026-03-01"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"cut off")

    (found,) = bench.run(job(), FIRST)

    assert found.version == 1
    assert list(left.parent.iterdir()) == []


def test_what_others_change_meanwhile_in_another_day_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run(job(), FIRST)
    real = of_day.judge_day

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        other = DeltaTable(bench.settings.tables / "items").to_pyarrow_table().slice(0, 1)
        write_deltalake(bench.settings.tables / "items", other, mode="append")
        return real(*arguments, **named)

    monkeypatch.setattr("deltaworks.batch.running.judge_day", meanwhile)
    bench.run(job(), SECOND)

    days = [row["day"] for row in bench.rows()]
    assert days.count(FIRST) == len({row["item"] for row in bench.rows() if row["day"] == FIRST}) + 1
    assert SECOND in days
