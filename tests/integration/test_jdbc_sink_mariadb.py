"""Rows of a sink in a real MariaDB: its own statements, types and locks."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import SinkBatch, SinkRecord
from deltaworks.errors import ConfigurationError, FencedError, SinkError
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack import source_mariadb
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.ports import free_ports
from tests.integration import test_jdbc_sink as on_postgres
from tests.integration.test_jdbc_sink import ORDER, Order, sink_of, write, writer
from tests.support.live_stack import reachable


@pytest.fixture(scope="module")
def database() -> Iterator[dict[str, Any]]:
    """How it is reached. Not below pytest's own folder, which the server's user cannot enter under root."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-mariadb-") as folder:
        home = own_settings(reachable(Path(folder)) / "home")
        settings = replace(home, source_mariadb_port=free_ports(1)[0])
        try:
            up(settings, only=["source-mariadb"], tethered=True)
            secret = Path(folder) / "password"
            secret.write_text(source_mariadb.passwords(settings)["app"])
            url = f"mariadb://127.0.0.1:{settings.source_mariadb_port}/shop"
            yield {"url": url, "username": "app", "password": {"file": str(secret)}}
        finally:
            down(settings)


@pytest.fixture
def login(database: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield database
    while on_postgres._opened:
        on_postgres._opened.pop().close()
    ask(database, "DROP TABLE IF EXISTS orders, deltaworks_sink_progress")


def ask(database: dict[str, Any], statement: str) -> list[tuple[Any, ...]]:
    import pymysql

    port = int(database["url"].rpartition(":")[2].partition("/")[0])
    password = Path(database["password"]["file"]).read_text()
    own = pymysql.connect(user="app", password=password, host="127.0.0.1", port=port, database="shop", autocommit=True)
    try:
        with own.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        own.close()


def test_all_types_come_back(login: dict[str, Any]) -> None:
    to = writer(sink_of(login, Order, timestamp_column="updated"))

    write(to, 0, ("a", ORDER), ("b", msgspec.structs.replace(ORDER, city=None)), ("c", ORDER))
    write(to, 1, ("a", msgspec.structs.replace(ORDER, big=1)), ("c", None))

    lines = [{"item": "a'", "price": "1.000000000000000000"}]
    found = [(*row[:9], msgspec.json.decode(row[9]), row[10]) for row in ask(login, "SELECT * FROM orders ORDER BY 1")]
    at, updated = datetime(2026, 3, 1, 12, 0, 0, 5), datetime(1970, 1, 1, 0, 1, 1, 5_000)
    assert found == [
        (key, city, Decimal("1.50"), at, ORDER.day, big, 0.1, 1, b"\x00", lines, updated)
        for key, city, big in (("a", "Ütrecht", 1), ("b", None, 2**40))
    ]


def test_a_batch_is_recognised_and_another_worker_waits(login: dict[str, Any]) -> None:
    sink = sink_of(login, mode="append")
    first, second = writer(sink), writer(sink)
    first.committed()
    first.write(SinkBatch(0, "i0"), [SinkRecord("a", "x", 0, ())])
    done = threading.Event()

    def other() -> None:
        write(second, 0, ("a", "x"))
        done.set()

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert not done.wait(0.5), "it did not wait"
    first.commit()
    assert done.wait(20)
    thread.join()
    assert ask(login, "SELECT * FROM orders") == [("a", "x")]

    write(writer(sink, "another", generation=2), 0, ("b", "y"))
    with pytest.raises(FencedError, match="Generation 2"):
        write(first, 1, ("a", "z"))
    assert ask(login, "SELECT * FROM orders") == [("a", "x"), ("b", "y")]


def test_what_does_not_fit_is_refused(login: dict[str, Any]) -> None:
    ask(login, "CREATE TABLE orders (`key` varchar(5) PRIMARY KEY, value int)")
    with pytest.raises(ConfigurationError, match=r"column 'value' is INTEGER.*, not TEXT"):
        writer(sink_of(login))
    ask(login, "ALTER TABLE orders MODIFY value text")

    to = writer(sink_of(login))
    with pytest.raises(SinkError, match="Data too long for column 'key'"):
        write(to, 0, ("a", "x"), ("long key", "x"))
    write(to, 0, ("a", "x"))

    assert ask(login, "SELECT * FROM orders") == [("a", "x")]
