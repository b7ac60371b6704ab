"""Batch jobs on tables in an object store: as on those of a home, and never over what another writer has committed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark import SparkContext

from deltaworks import config, files
from deltaworks.batch import delta_tables, jobs, running
from deltaworks.errors import ConflictError
from deltaworks.lakehouse.reading import delta_table, options
from deltaworks.settings import Settings
from tests.spark.test_batch import FIRST, RECORDS, ROOT, SECOND, SEED, counted, job
from tests.support.object_stores import BUCKET, moto
from tests.support.processes import words
from tests.system.data_defects.run import run

SECRET = "only-the-store-may-see-it"


class InStore:
    """A home whose tables are in a store, and the same tables on the disk."""

    def __init__(self, local: Settings, endpoint: str) -> None:
        self.local = local
        access = Settings.s3_access_in(local.home)
        access.parent.mkdir()
        access.write_text(
            f'[s3]\nendpoint = "{endpoint}"\nregion = "us-east-1"\npath_style = true\n'
            f'access_key = {{ env = "TESTS_ACCESS_KEY" }}\nsecret_key = {{ env = "TESTS_SECRET_KEY" }}\n'
        )
        self.settings = replace(
            local, tables_address=f"s3://{BUCKET}/tables", values=config.with_own_server(local.values, access, "s3")
        )

    def run(self, *days: dt.date) -> list[running.DayResult]:
        return running.run(self.settings, "items", days, run_id="test")

    def rows(self) -> list[dict[str, Any]]:
        return in_order(delta_table(self.settings.tables / "items"))

    def of_other_writer(self, day: dt.date) -> None:
        """Another writer leaves one row of a day."""
        path = self.settings.tables / "items"
        row = delta_table(path).to_pyarrow_table().slice(0, 1)
        row = row.set_column(row.schema.get_field_index("day"), row.schema.field("day"), [[day]])
        write_deltalake(str(path), row, mode="overwrite", predicate=f"day = '{day}'", storage_options=options(path))


def before_the_commit(monkeypatch: pytest.MonkeyPatch, first: Callable[[], None]) -> None:
    """Calls something once, between the next job's look at its table and its commit."""

    def write(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(delta_tables, "write_deltalake", write_deltalake)
        first()
        write_deltalake(*arguments, **named)

    monkeypatch.setattr(delta_tables, "write_deltalake", write)


def in_order(table: DeltaTable) -> list[dict[str, Any]]:
    return sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: tuple(map(str, row.values())))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InStore]:
    home = tmp_path_factory.mktemp("home")
    run("orders", home, records=RECORDS, seed=SEED)
    local = replace(Settings.from_environment({"DELTAWORKS_PROJECT": str(ROOT)}), home=home, cores=1)
    with pytest.MonkeyPatch.context() as patch, moto() as endpoint, own_jvm():
        patch.setenv("TESTS_ACCESS_KEY", "tests")
        patch.setenv("TESTS_SECRET_KEY", SECRET)
        there = InStore(local, endpoint)
        for file, _ in files.walk(local.tables):
            files.link(file, there.settings.tables / file.relative_to(local.tables))
        yield there


@contextmanager
def own_jvm() -> Iterator[None]:
    """A JVM of its own: one that earlier tests have left does not have the jars."""
    earlier = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    yield
    gateway: Any = SparkContext._gateway
    if gateway is not None:  # somebody has needed it
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
    SparkContext._gateway, SparkContext._jvm = earlier


@pytest.fixture
def in_store(stored: InStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[InStore]:
    monkeypatch.setattr(jobs, "load", lambda settings, name: job())
    yield stored
    files.remove_tree(stored.settings.tables / "items")


def test_a_job_computes_what_it_computes_on_a_disk_and_again_the_same(in_store: InStore) -> None:
    first = in_store.run(FIRST, SECOND)
    rows = in_store.rows()
    again = in_store.run(FIRST, SECOND)
    running.run(in_store.local, "items", [FIRST, SECOND], run_id="test")

    assert [each.version for each in [*first, *again]] == [1, 2, 3, 4]
    assert in_store.rows() == rows == in_order(DeltaTable(in_store.local.tables / "items"))
    assert len({row["day"] for row in rows}) == 2


def test_what_another_writer_has_put_first_is_never_replaced(
    in_store: InStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_store.run(FIRST)
    log = in_store.settings.tables / "items" / "_delta_log" / f"{2:020}.json"
    put: list[bytes] = []

    def first() -> None:
        in_store.of_other_writer(FIRST)
        put.append(log.read_bytes())

    before_the_commit(monkeypatch, first)
    with pytest.raises(ConflictError, match="somebody else has changed the same rows meanwhile"):
        in_store.run(FIRST)

    assert [log.read_bytes()] == put
    assert len(in_store.rows()) == 1
    assert [each.version for each in in_store.run(FIRST)] == [3]


def test_what_another_writer_has_put_first_of_another_day_stays_beside_it(
    in_store: InStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_store.run(FIRST)

    before_the_commit(monkeypatch, lambda: in_store.of_other_writer(SECOND))
    (again,) = in_store.run(FIRST)

    assert again.version == 3
    assert [row["day"] for row in in_store.rows()].count(SECOND) == 1


def test_no_setting_and_no_command_line_shows_the_secret(in_store: InStore) -> None:
    with delta_tables.opened(in_store.settings, "items", in_store.settings.home / "scratch") as spark:
        gateway: Any = spark.sparkContext._gateway
        frame = delta_tables.at_version(spark, in_store.settings.tables / "enriched_orders", 1)

        assert counted(FIRST, frame).count() >= 0
        assert SECRET not in str(spark.sparkContext.getConf().getAll())
        shown = words(psutil.Process(gateway.proc.pid))
        assert shown
        assert not any(SECRET in word for word in shown)
