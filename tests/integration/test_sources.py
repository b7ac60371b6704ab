"""Databases of the stack whose changes Debezium reads, from the connector's file to the topic."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from deltaworks import Debezium, DebeziumKey, StreamsBuilder
from deltaworks.connect import planning, project, states
from deltaworks.connect.api import ConnectApi
from deltaworks.kafka.admin import partition_counts
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import postgres_server, source_mariadb, source_postgres
from deltaworks.stack.lifecycle import Status, down, log_of, status, up
from deltaworks.stack.ports import free_ports, is_free
from deltaworks.testing import TopologyTestDriver
from tests.support import polling
from tests.support.live_stack import await_restart, free_pair, kill_component, listening, reachable, read_all

until = partial(polling.until, timeout_s=90)

POSTGRES = """
from datetime import timedelta
from deltaworks.connect import DebeziumPostgres

connector = DebeziumPostgres(
    name="shop_cdc",
    hostname="127.0.0.1",
    port={port},
    user="cdc",
    password={{"env": "DELTAWORKS_CONNECT_SOURCE_POSTGRES_PASSWORD"}},
    dbname="shop",
    publication="shop",
    topic_prefix="shop",
    tables=["public.orders"],
    decimals="string",
    unwrap=True,
    topics="cdc.$1",
    plain_json=True,
    exactly_once=True,
    partitions=1,
    replication=1,
    poll_interval=timedelta(milliseconds=100),
    config={{"publication.autocreate.mode": "disabled", "retriable.restart.connector.wait.ms": 500}},
)
"""
MARIADB = """
from datetime import timedelta
from deltaworks.connect import DebeziumMariaDb

connector = DebeziumMariaDb(
    name="shop_mariadb",
    hostname="127.0.0.1",
    port={port},
    user="cdc",
    password={{"env": "DELTAWORKS_CONNECT_SOURCE_MARIADB_PASSWORD"}},
    server_id=5001,
    bootstrap="{bootstrap}",
    databases=["shop"],
    topic_prefix="shop_mariadb",
    tables=["shop.orders"],
    decimals="string",
    unwrap=True,
    topics="mariadb.$1",
    plain_json=True,
    exactly_once=True,
    partitions=1,
    replication=1,
    poll_interval=timedelta(milliseconds=100),
    config={{"connect.keep.alive.interval.ms": 1000}},
)
"""
TABLE = "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20) NOT NULL, amount DECIMAL(10, 2))"
BEFORE = ["INSERT INTO orders VALUES (1, 'tea', 9.50)", "INSERT INTO orders VALUES (2, 'jam', 3)"]
CHANGES = [
    "INSERT INTO orders VALUES (3, 'rye', NULL)",
    "UPDATE orders SET amount = 10.25 WHERE id = 1",
    "DELETE FROM orders WHERE id = 2",
    "UPDATE orders SET id = 30 WHERE id = 3",
    "ALTER TABLE orders ADD COLUMN note VARCHAR(20)",
    "INSERT INTO orders VALUES (4, 'oil', 1, 'new')",
]
DELETED: dict[str, Any] = {"op": "d", "deleted": "true"}
EXPECTED = [
    (1, {"op": "r", "item": "tea", "amount": "9.50"}),
    (2, {"op": "r", "item": "jam", "amount": "3.00"}),
    (3, {"op": "c", "item": "rye", "amount": None}),
    (1, {"op": "u", "item": "tea", "amount": "10.25"}),
    (2, DELETED),
    (2, None),
    (3, DELETED),
    (3, None),
    (30, {"op": "c", "item": "rye", "amount": None}),
    (4, {"op": "c", "item": "oil", "amount": "1.00", "note": "new"}),
]
"""Key and row of each record: a key that changes is a deletion and a new row."""


@contextmanager
def own_home(*plugins: str) -> Iterator[Settings]:
    """With a project of its own, beside the home: the user of a server has to reach that."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-sources-") as folder:
        settings = own_settings(reachable(Path(folder)) / "home")
        postgres, mariadb = free_ports(2)
        settings = replace(
            settings,
            project=Path(folder) / "project",
            connect_port=free_pair(),
            connect_plugins=plugins or settings.connect_plugins,
            source_postgres_port=postgres,
            source_mariadb_port=mariadb,
        )
        (settings.project / "jobs" / "connectors").mkdir(parents=True)
        try:
            yield settings
        finally:
            down(settings)


@pytest.fixture
def settings() -> Iterator[Settings]:
    with own_home() as settings:
        yield settings


def found(settings: Settings, name: str) -> Status:
    return next(entry for entry in status(settings) if entry.name == name)


def log_in(settings: Settings, user: str, database: str = "shop") -> psycopg.Connection:
    return psycopg.connect(
        host="127.0.0.1",
        port=settings.source_postgres_port,
        user=user,
        dbname=database,
        passfile=str(settings.source_pgpass),
        connect_timeout=5,
        autocommit=True,
    )


def in_postgres(settings: Settings, *statements: str) -> None:
    """As the application."""
    with closing(log_in(settings, "app")) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def in_mariadb(settings: Settings, *statements: str, user: str = "app") -> list[tuple[Any, ...]]:
    """As the application or another user, by the file with the passwords; returns the rows of the last statement."""
    import pymysql

    own = pymysql.connect(
        read_default_file=str(settings.source_options), read_default_group=f"client-{user}", autocommit=True
    )
    with closing(own) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def apply(settings: Settings, name: str, text: str) -> None:
    """Writes the file of a connector, and does what `deltaworks connect plan` and `apply` do."""
    (settings.project / "jobs" / "connectors" / f"{name}.py").write_text(text)
    told = Settings.from_environment(settings.environment(), cwd=settings.project)
    with ConnectApi.of(told) as api:
        planned = planning.plan(project.load_all(told), api)
        planned.require_sound()
        assert [change.name for change in planned.pending] == [name]
        planning.apply(planned, api)
        assert not states.wait(api, [name], 60, lambda _: None).has_failures
        again = planning.plan(project.load_all(told), api)
    assert not again.pending


def changes(settings: Settings, topic: str) -> list[tuple[int, dict[str, Any] | None]]:
    """Key and row of each record that is committed; of a row that was deleted, only that it was."""
    if topic not in partition_counts(settings.cluster):
        return []
    return [_change(message) for message in read_all(settings.cluster, topic)]


def _change(message: Any) -> tuple[int, dict[str, Any] | None]:
    key, value = json.loads(message.key())["id"], message.value()
    if value is None:
        return key, None
    row = json.loads(value)
    if row["__op"] == "d":
        return key, {"op": "d", "deleted": row["__deleted"]}
    assert row.pop("__deleted") == "false"
    assert row.pop("id") == key
    assert row.pop("__source_ts_ms") > 0 and row.pop("__ts_ms") > 0
    return key, {"op": row.pop("__op"), **row}


class Order(msgspec.Struct):
    item: str
    amount: Decimal | None
    note: str | None = None


def as_table(settings: Settings, topic: str) -> dict[int, tuple[Any, ...]]:
    """What a pipeline makes of a topic: number, item, amount and note of each row."""
    builder = StreamsBuilder()
    builder.table(topic, key=DebeziumKey(int, field="id"), value=Debezium(Order), store="orders")
    driver = TopologyTestDriver(builder.build())
    records = driver.create_input_topic(topic)
    for message in read_all(settings.cluster, topic):
        records.pipe_raw(message.key(), message.value())
    rows = driver.key_value_store("orders", key=DebeziumKey(int, field="id"), value=Order).all()
    return {key: (key, row.item, row.amount, row.note) for key, row in rows}


def test_changes_of_postgres_arrive_each_once_also_after_it_was_killed() -> None:
    with own_home("debezium-postgres") as settings:
        up(settings, only=["connect"], tethered=True)  # before its database, whose password it knows all the same
        up(settings, only=["source-postgres"], tethered=True)
        in_postgres(settings, TABLE, *BEFORE)
        apply(settings, "shop_cdc", POSTGRES.format(port=settings.source_postgres_port))
        until(lambda: changes(settings, "cdc.orders") == EXPECTED[:2])

        in_postgres(settings, *CHANGES)
        until(lambda: len(changes(settings, "cdc.orders")) >= len(EXPECTED))
        assert changes(settings, "cdc.orders") == EXPECTED

        killed = kill_component(settings, "source-postgres")
        await_restart(settings, "source-postgres", killed)
        in_postgres(settings, "INSERT INTO orders VALUES (5, 'hop', 2, NULL)")
        until(lambda: len(changes(settings, "cdc.orders")) > len(EXPECTED))
        fifth = (5, {"op": "c", "item": "hop", "amount": "2.00", "note": None})
        assert changes(settings, "cdc.orders") == [*EXPECTED, fifth]
        with closing(log_in(settings, "app")) as connection:
            rows = connection.execute("SELECT id, item, amount, note FROM orders").fetchall()
        assert as_table(settings, "cdc.orders") == {row[0]: row for row in rows}

        words = postgres_server.passwords(source_postgres.server(settings))
        logs = [log_of(settings, name).read_text() for name in ("connect", "source-postgres", "runner")]
        assert not [word for word in words.values() if word in "".join(logs)]


def test_a_source_postgres_keeps_its_data_and_gives_each_user_its_rights(settings: Settings) -> None:
    first = up(settings, only=["source-postgres"], tethered=True)
    assert first.started == ["source-postgres"]
    assert listening(first["source-postgres"].pid) == {("127.0.0.1", settings.source_postgres_port)}
    assert stat.S_IMODE(settings.source_pgpass.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.source_postgres.stat().st_mode) == 0o700
    in_postgres(settings, TABLE, *BEFORE)

    with closing(log_in(settings, "cdc")) as cdc:
        assert cdc.execute("SHOW wal_level").fetchone() == ("logical",)
        assert cdc.execute("SELECT pubname, puballtables FROM pg_publication").fetchall() == [("shop", True)]
        assert cdc.execute("SELECT count(*) FROM orders").fetchone() == (2,)
        for refused in ("INSERT INTO orders VALUES (9, 'x', 1)", "DROP TABLE orders", "CREATE TABLE own (id INT)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                cdc.execute(refused.encode())
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        log_in(settings, "cdc", "postgres")
    with closing(log_in(settings, "app")) as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")

    await_restart(settings, "source-postgres", kill_component(settings, "source-postgres"))
    assert down(settings) == ["source-postgres"]
    assert is_free(settings.source_postgres_port)
    assert not postgres_server.server_processes(source_postgres.server(settings))
    settings.source_pgpass.unlink()

    up(settings, only=["source-postgres"], tethered=True)
    with closing(log_in(settings, "app")) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)
    down(settings, delete_data=True)
    assert not settings.home.exists()


@pytest.mark.slow
def test_changes_of_mariadb_arrive_each_once_also_after_it_was_killed() -> None:
    with own_home("debezium-mariadb") as settings:
        up(settings, only=["connect"], tethered=True)
        up(settings, only=["source-mariadb"], tethered=True)
        in_mariadb(settings, TABLE, *BEFORE)
        text = MARIADB.format(port=settings.source_mariadb_port, bootstrap=settings.bootstrap)
        apply(settings, "shop_mariadb", text)
        until(lambda: changes(settings, "mariadb.orders") == EXPECTED[:2])

        in_mariadb(settings, *CHANGES)
        until(lambda: len(changes(settings, "mariadb.orders")) >= len(EXPECTED))
        assert changes(settings, "mariadb.orders") == EXPECTED

        killed = kill_component(settings, "source-mariadb")
        await_restart(settings, "source-mariadb", killed)
        in_mariadb(settings, "INSERT INTO orders VALUES (5, 'hop', 2, NULL)")
        until(lambda: len(changes(settings, "mariadb.orders")) > len(EXPECTED))
        fifth = (5, {"op": "c", "item": "hop", "amount": "2.00", "note": None})
        assert changes(settings, "mariadb.orders") == [*EXPECTED, fifth]
        rows = in_mariadb(settings, "SELECT id, item, amount, note FROM orders")
        assert as_table(settings, "mariadb.orders") == {row[0]: row for row in rows}

        words = source_mariadb.passwords(settings)
        logs = [log_of(settings, name).read_text() for name in ("connect", "source-mariadb", "runner")]
        assert not [word for word in words.values() if word in "".join(logs)]


@pytest.mark.slow
def test_a_source_mariadb_keeps_its_data_and_gives_each_user_its_rights(settings: Settings) -> None:
    import pymysql

    first = up(settings, only=["source-mariadb"], tethered=True)
    assert first.started == ["source-mariadb"]
    assert listening(first["source-mariadb"].pid) == {("127.0.0.1", settings.source_mariadb_port)}
    assert stat.S_IMODE(settings.source_options.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.source_mariadb.stat().st_mode) == 0o700
    in_mariadb(settings, TABLE, *BEFORE)

    assert in_mariadb(settings, "SELECT @@binlog_format, @@binlog_row_image", user="cdc") == [("ROW", "FULL")]
    assert in_mariadb(settings, "SELECT count(*) FROM orders", user="cdc") == [(2,)]
    for refused in ("INSERT INTO orders VALUES (9, 'x', 1)", "DROP TABLE orders", "SELECT * FROM mysql.global_priv"):
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            in_mariadb(settings, refused, user="cdc")
    with pytest.raises(pymysql.err.OperationalError, match="denied"):
        in_mariadb(settings, "SELECT * FROM mysql.global_priv")
    for user in ("anybody", "app", "root"):
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            pymysql.connect(user=user, host="127.0.0.1", port=settings.source_mariadb_port, connect_timeout=5)
    written = in_mariadb(settings, "SHOW BINLOG EVENTS", user="root")
    assert not [row for row in written if "IDENTIFIED" in str(row) or "GRANT" in str(row)]

    await_restart(settings, "source-mariadb", kill_component(settings, "source-mariadb"))
    assert down(settings) == ["source-mariadb"]
    assert is_free(settings.source_mariadb_port)
    settings.source_options.unlink()

    up(settings, only=["source-mariadb"], tethered=True)
    assert in_mariadb(settings, "SELECT count(*) FROM orders") == [(2,)]
    down(settings, delete_data=True)
    assert not settings.home.exists()
