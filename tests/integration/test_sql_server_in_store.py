"""The SQL server whose tables are in an object store, behind a proxy with TLS that counts what a statement asks of it.

A stream commits batches there from this process. The home of the server knows the store, and has nothing else of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.control.topics import all_topics
from deltaworks.files import remove_tree
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.reading import dataset
from deltaworks.object_path import ObjectPath
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.certificates import Authority
from deltaworks.stack.lifecycle import down, log_of, status, up
from deltaworks.testing.topics import RawRecord
from jobs.orders import pipeline
from jobs.sample_data.kafka import PARTITIONS
from jobs.sample_data.orders import records
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.integration.test_sql_server import connected, refusal, rows
from tests.support.object_stores import Faults
from tests.support.secrecy import files_below, holding
from tests.system.kills.store_under_kills import share_keys, stored

CHANGES, OTHER = "users_changelog", "other"
COUNT = f"SELECT count(*) FROM {CHANGES}"
NO_TABLE = 4
"""Requests of a statement about nothing: what is there, which pipelines have cuts, and the newest of the only one."""
ONE_TABLE = 3
"""For a table that is not ahead of its cut: whether the commit is the one that is known, and twice what the log has."""

REFUSED = """\
SELECT * FROM delta.`{tables}/users`
SELECT * FROM delta.`{hadoop}/users`
SELECT * FROM parquet.`{tables}/users`
SELECT * FROM text.`{tables}/_cuts/orders/latest.json`
SELECT * FROM users WHERE EXISTS (SELECT * FROM parquet.`{tables}/users`)
SELECT * FROM {changes} VERSION AS OF 0
DESCRIBE delta.`{tables}/users`
DESCRIBE DETAIL {changes}
SHOW CREATE TABLE {changes}
CREATE TABLE t (a INT) USING delta LOCATION '{tables}/users'
CREATE TABLE t USING csv LOCATION '{tables}/new' AS SELECT 1
CREATE TEMPORARY VIEW p USING parquet OPTIONS (path '{tables}/users')
INSERT OVERWRITE DIRECTORY '{tables}/new' USING csv SELECT 1
INSERT INTO {changes} SELECT * FROM {changes}
DELETE FROM {changes}
DROP TABLE {changes}
OPTIMIZE {changes}
VACUUM delta.`{tables}/users` RETAIN 0 HOURS
CONVERT TO DELTA parquet.`{tables}/users`
SET
SET -v
SET fs.s3a.bucket.deltaworks.secret.key
SET spark.hadoop.fs.s3a.bucket.deltaworks.secret.key
EXPLAIN EXTENDED SELECT * FROM delta.`{tables}/users`
SELECT reflect('java.lang.System', 'getenv', 'DELTAWORKS_SQL_HADOOP')
""".splitlines()
_BETWEEN_CUTS_S = 0.05
"""A driver shows a cut with each batch, never more often."""
TOLD = """\
DESCRIBE EXTENDED {changes}
DESCRIBE FORMATTED {changes}
DESCRIBE {changes}
EXPLAIN EXTENDED SELECT * FROM {changes}
EXPLAIN FORMATTED SELECT * FROM {changes}
EXPLAIN CODEGEN SELECT * FROM {changes}
EXPLAIN COST SELECT * FROM {changes}
SHOW TABLES
SELECT '${{env:DELTAWORKS_SQL_HADOOP}}', '${{hiveconf:fs.s3a.bucket.deltaworks.secret.key}}'
""".splitlines()
"""What is answered, and could tell more than it should."""

pytestmark = pytest.mark.timeout(600)


@dataclass
class Stored:
    """A stream with its tables in a store, and a SQL server that reads them."""

    stream: InProcessStream
    kafka: MemoryKafka
    server: Settings
    proxy: Faults

    @property
    def tables(self) -> ObjectPath:
        found = self.stream.settings.tables
        assert isinstance(found, ObjectPath)
        return found

    @property
    def secrets(self) -> list[str]:
        folder = self.server.s3 / "secrets"
        return [(folder / name).read_text().strip() for name in ("access.key", "secret.key")]

    def commit(self) -> None:
        """A batch, which no cut names yet."""
        for _ in range(200):
            record = next(_DELIVERED)
            raw = RawRecord(record.key, record.value, record.timestamp_ms)
            self.kafka.write(record.topic, raw, record.partition)
        self.stream.run(self.stream.end())

    def cut(self) -> None:
        """Names what is committed."""
        self.stream.committer.refresh_snapshots(force=True)
        assert self.stream.committer.publish_cut() is not None

    def count(self, table: str, version: int | None = None) -> int:
        path = self.tables / table
        opened = DeltaTable(str(path), version=version, storage_options=path.store.options())
        return int(dataset(path, opened).count_rows())

    def row(self) -> pa.Table:
        path = self.tables / CHANGES
        return dataset(path, DeltaTable(str(path), storage_options=path.store.options())).head(1)

    def write(self, table: str, row: pa.Table, times: int = 1) -> None:
        """Versions of a table that no stream writes, each with a row more."""
        path = self.tables / table
        for _ in range(times):
            write_deltalake(str(path), row, mode="append", storage_options=path.store.options())

    def asked(self) -> list[str]:
        """The requests since the last call."""
        taken = list(self.proxy.requests)
        self.proxy.requests.clear()
        return taken


_DELIVERED = iter(records(1_000_000))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("lake")
    with stored(own_settings(folder / "store")) as store:
        kafka = MemoryKafka(dict.fromkeys(all_topics(pipeline, pipeline.plan()), PARTITIONS))
        stream = InProcessStream(pipeline, store.settings, kafka=kafka)
        authority = Authority.make(folder, "authority")
        authority.issue("proxy", hosts=["127.0.0.1"], together=True)
        server = replace(own_settings(folder / "reader"), tables_address=store.settings.tables_address)
        share_keys(store.settings, server)
        access = server.s3_access_in(server.home)
        own = f"http://127.0.0.1:{store.settings.s3_port}"
        with Faults(own, folder / "proxy.pem") as proxy:
            text = access.read_text().replace(own, proxy.endpoint)
            access.write_text(f'{text}ca_file = "{folder / "authority.pem"}"\n')
            lake = Stored(stream, kafka, server, proxy)
            lake.commit()
            lake.cut()
            assert up(server, only=["sql"], tethered=True).started == ["sql"]
            try:
                yield lake
            finally:
                assert down(server) == ["sql"]


@pytest.fixture
def cursor(lake: Stored) -> Iterator[Any]:
    with closing(connected(lake.server)) as connection:
        yield connection.cursor()


def counted(cursor: Any, table: str) -> int:
    return int(rows(cursor, f"SELECT count(*) FROM {table}")[0][0])


def test_tables_are_as_of_the_newest_cut_and_a_new_one_is_seen(lake: Stored, cursor: Any) -> None:
    before = lake.count(CHANGES)
    lake.commit()
    assert lake.count(CHANGES) > before
    assert counted(cursor, CHANGES) == before

    lake.cut()

    cut = cuts.latest(lake.tables, pipeline.name)
    assert cut is not None
    for table, version in cut.tables.items():
        assert counted(cursor, table) == lake.count(table, version)
    assert counted(cursor, CHANGES) > before


def test_a_statement_makes_few_requests(lake: Stored, cursor: Any) -> None:
    counted(cursor, CHANGES)
    lake.asked()

    rows(cursor, "SELECT 1")
    assert len(lake.asked()) == NO_TABLE
    counted(cursor, CHANGES)
    assert len(lake.asked()) == NO_TABLE + ONE_TABLE


def test_a_cut_that_is_torn_or_that_the_store_does_not_give(lake: Stored, cursor: Any) -> None:
    file = lake.tables / "_cuts" / pipeline.name / "latest.json"
    whole, held = file.read_bytes(), counted(cursor, CHANGES)
    lake.commit()
    try:
        file.write_bytes(whole[: len(whole) // 2])
        assert counted(cursor, CHANGES) == lake.count(CHANGES)
        file.unlink()
        assert counted(cursor, CHANGES) == lake.count(CHANGES)
    finally:
        file.write_bytes(whole)

    assert counted(cursor, CHANGES) == held


def test_a_cut_that_is_replaced_while_it_is_read_holds(lake: Stored, cursor: Any) -> None:
    file = lake.tables / "_cuts" / pipeline.name / "latest.json"
    whole, held, over = file.read_bytes(), counted(cursor, CHANGES), Event()
    assert lake.count(CHANGES) > held

    def replace_it() -> None:
        for size in itertools.cycle(range(0, 400, 40)):
            file.write_bytes(whole + b" " * size)
            if over.wait(_BETWEEN_CUTS_S):
                break

    writer = Thread(target=replace_it)
    writer.start()
    try:
        assert {counted(cursor, CHANGES) for _ in range(10)} == {held}
    finally:
        over.set()
        writer.join()


def test_new_tables_appear_those_made_anew_are_read_anew_and_those_gone_disappear(lake: Stored, cursor: Any) -> None:
    lake.write(OTHER, lake.row(), times=3)
    assert counted(cursor, OTHER) == 3
    assert ("default", OTHER, False) in rows(cursor, "SHOW TABLES")

    remove_tree(lake.tables / OTHER)
    lake.write(OTHER, lake.row())
    assert counted(cursor, OTHER) == 1

    remove_tree(lake.tables / OTHER)
    assert "other" in refusal(cursor, f"SELECT count(*) FROM {OTHER}")
    assert ("default", OTHER, False) not in rows(cursor, "SHOW TABLES")


def test_a_cut_does_not_hold_for_a_table_that_was_made_anew(lake: Stored, cursor: Any) -> None:
    path, cut = lake.tables / CHANGES, cuts.latest(lake.tables, pipeline.name)
    assert cut is not None
    times = cut.tables[CHANGES] + 2
    assert counted(cursor, CHANGES) == lake.count(CHANGES, cut.tables[CHANGES])
    kept = {file: file.read_bytes() for file, _ in path.files()}
    row = lake.row()
    try:
        remove_tree(path)
        lake.write(CHANGES, row, times=times)

        assert counted(cursor, CHANGES) == times  # as it is now, and not at the version of the cut
    finally:
        remove_tree(path)
        for file, data in kept.items():
            file.write_bytes(data)


@pytest.mark.parametrize("statement", REFUSED)
def test_paths_of_the_store_settings_and_whatever_writes_are_refused(lake: Stored, cursor: Any, statement: str) -> None:
    before = {file: about.st_mtime for file, about in lake.tables.files()}
    address = str(lake.tables)

    said = refusal(cursor, statement.format(tables=address, hadoop=address.replace("s3:", "s3a:"), changes=CHANGES))

    assert "RefusedException" in said or "ParseException" in said
    assert not [secret for secret in lake.secrets if secret in said]
    assert {file: about.st_mtime for file, about in lake.tables.files()} == before


@pytest.mark.parametrize("statement", TOLD)
def test_no_answer_has_a_key(lake: Stored, cursor: Any, statement: str) -> None:
    told = str(rows(cursor, statement.format(changes=CHANGES)))

    assert told
    assert not [word for word in (*lake.secrets, "secret.key=", '"fs.s3') if word in told]


def test_the_keys_are_in_no_command_log_or_file(lake: Stored, cursor: Any) -> None:
    assert counted(cursor, CHANGES)
    process = next(entry for entry in status(lake.server) if entry.name == "sql")
    written = files_below(lake.server.home)

    assert any("DELTAWORKS_SQL_HADOOP" in name for name in psutil.Process(process.pid).environ())
    assert not [word for word in psutil.Process(process.pid).cmdline() for secret in lake.secrets if secret in word]
    assert log_of(lake.server, "sql") in written
    keys = {str(file) for file in files_below(lake.server.s3 / "secrets")}
    assert set(holding(written, *lake.secrets)) == keys
