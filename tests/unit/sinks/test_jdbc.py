"""Tables of databases: what is refused before anything is written. `tests/integration/test_sinks.py` writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine

from deltaworks import Pipeline, SinkTask, StreamsBuilder, TopologyError
from deltaworks.errors import ConfigurationError
from deltaworks.sinks.jdbc import _fits, engine, upsert
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.external import JdbcTable
from deltaworks.topology.nodes import CustomSink

URL = "postgresql://db.example.com/shop"


def sink_of(**settings: Any) -> JdbcTable:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int).to_jdbc("orders", **{"url": URL, **settings})

    (node,) = [n for n in Pipeline(name="p", topology=topology).plan().nodes if isinstance(n, CustomSink)]
    assert isinstance(node.sink, JdbcTable)
    return node.sink


@contextmanager
def without(*modules: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setitem(__import__("sys").modules, module, None)
        yield


def test_a_package_that_is_missing_is_named() -> None:
    with without("pymysql"), pytest.raises(ConfigurationError, match=r"needs the package 'pymysql'") as raised:
        sink_of(url="mariadb://h/db").open(SinkTask(pipeline="p", sink="s", task=0, checkpoint="c"))

    assert "pip install 'pymysql'" in str(raised.value)


def test_a_user_is_part_of_no_address_and_of_no_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")
    sink = sink_of(username="shop", password={"env": "SHOP_PASSWORD"})

    made = engine(sink)

    assert (made.url.drivername, made.url.username, made.url.password) == ("postgresql+psycopg", "shop", "s3cret")
    assert "s3cret" not in repr(sink) and "s3cret" not in repr(made)


def test_an_address_that_a_reference_leads_to_is_checked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "oracle://h/db")
    with pytest.raises(ConfigurationError, match=r"url= of to_jdbc\('orders'\) is of 'oracle'"):
        engine(sink_of(url={"env": "SHOP_URL"}))
    monkeypatch.setenv("SHOP_URL", "s3cret and no address")
    with pytest.raises(ConfigurationError, match="is no address") as raised:
        engine(sink_of(url={"env": "SHOP_URL"}))
    assert "s3cret" not in str(raised.value)


TEXT, LONG, INSTANT = sa.Text(), sa.BigInteger(), postgresql.TIMESTAMP(timezone=True)


@pytest.mark.parametrize(
    ("ours", "there", "fits"),
    [
        (TEXT, sa.VARCHAR(20), True),
        (TEXT, postgresql.UUID(), False),
        (LONG, sa.INTEGER(), True),
        (LONG, sa.NUMERIC(20), True),
        (LONG, sa.NUMERIC(10), False),
        (LONG, sa.TEXT(), False),
        (sa.Numeric(10, 2), sa.NUMERIC(12, 2), True),
        (sa.Numeric(10, 2), sa.NUMERIC(), True),
        (sa.Numeric(10, 2), sa.NUMERIC(10, 3), False),
        (sa.Numeric(10, 2), sa.NUMERIC(10, 1), False),
        (sa.Numeric(10, 2), postgresql.DOUBLE_PRECISION(), False),
        (sa.Double(), postgresql.DOUBLE_PRECISION(), True),
        (sa.Double(), mysql.DOUBLE(), True),
        (sa.Double(), sa.REAL(), False),
        (INSTANT, postgresql.TIMESTAMP(timezone=True), True),
        (INSTANT, postgresql.TIMESTAMP(), False),
        (mysql.DATETIME(fsp=6), mysql.DATETIME(fsp=6), True),
        (sa.Date(), sa.DATE(), True),
        (sa.Date(), INSTANT, False),
        (sa.Boolean(), sa.BOOLEAN(), True),
        (sa.Boolean(), mysql.TINYINT(1), True),
        (sa.LargeBinary(), postgresql.BYTEA(), True),
        (sa.LargeBinary(), sa.TEXT(), False),
        (postgresql.JSONB(), postgresql.JSON(), True),
        (postgresql.JSONB(), sa.TEXT(), False),
    ],
)
def test_a_column_fits_if_it_takes_what_is_written(ours: TypeEngine[Any], there: TypeEngine[Any], fits: bool) -> None:
    assert _fits(ours, there) is fits


@pytest.mark.parametrize(
    ("is_mysql", "columns", "statement"),
    [
        (
            False,
            ("k", "v"),
            "INSERT INTO t (k, v) VALUES (%(k)s, %(v)s) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
        ),
        (False, ("k",), "INSERT INTO t (k) VALUES (%(k)s) ON CONFLICT (k) DO NOTHING"),
        (True, ("k", "v"), "INSERT INTO t (k, v) VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = VALUES(v)"),
        (True, ("k",), "INSERT INTO t (k) VALUES (%s) ON DUPLICATE KEY UPDATE k = VALUES(k)"),
    ],
)
def test_rows_are_replaced_in_the_words_of_each_database(
    is_mysql: bool, columns: tuple[str, ...], statement: str
) -> None:
    table = sa.Table("t", sa.MetaData(), *(sa.Column(name, sa.Text) for name in columns))
    made: Any = mysql.dialect if is_mysql else postgresql.dialect
    dialect = made(paramstyle="format" if is_mysql else "pyformat")

    compiled = str(upsert(table, ("k",), is_mysql=is_mysql).compile(dialect=dialect))

    assert re.sub(r"::\w+|\s+", lambda found: "" if found[0].startswith("::") else " ", compiled) == statement


def test_a_value_that_no_column_holds_is_a_dead_letter() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=int, store="t").map_values(lambda n: n**9, value=int).to_jdbc("t", url=URL)

    driver = TopologyTestDriver(Pipeline(name="p", topology=topology, on_error="continue"))
    driver.create_input_topic("in").pipe_key_value_list([("a", 2), ("b", 1_000), ("a", None)])

    assert [(each.key, each.value) for each in driver.sink("jdbc-t")] == [("a", 512), ("a", None)]
    (letter,) = driver.dead_letters
    assert "does not fit column 'value' of table 't'" in letter.message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.to_jdbc("", url=URL), "needs the name of a table"),
        (lambda s: s.to_jdbc("t", url="postgresql://u:secret@h/d"), "has a password in it"),
        (lambda s: s.to_jdbc("t", url="jdbc:postgresql://h/d"), "is no address"),
        (lambda s: s.to_jdbc("t", url=URL, mode="merge"), "mode= is 'merge'"),
        (lambda s: s.to_jdbc("t", url=URL, username="u", password="secret"), "is a secret"),
        (lambda s: s.to_jdbc("t", url=URL, key=("a", "b")), "key= has 2 names"),
        (lambda s: s.to_jdbc("t", url=URL, timestamp_column="value"), "is a column already"),
        (lambda s: s.map(lambda k, v: (k, v)).to_jdbc("t", url=URL), "needs the types?"),
    ],
)
def test_a_call_that_cannot_work_is_refused_where_it_is(call: Callable[[Any], None], message: str) -> None:
    builder = StreamsBuilder()

    with pytest.raises(TopologyError, match=message) as raised:
        call(builder.stream("in", key=str, value=str))
        builder.build()

    assert "to_delta" not in str(raised.value) and "secret@" not in str(raised.value)
