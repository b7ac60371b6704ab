"""Rows of a sink in a real PostgreSQL: types, refusals, and exactness whatever fails."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psycopg
import pytest

from deltaworks import DecimalDigits, Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder
from deltaworks.errors import ConfigurationError, FencedError, SinkError
from deltaworks.serdes.windowed import Windowed
from deltaworks.settings import Settings
from deltaworks.sinks.jdbc import JdbcWriter
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.external import JdbcTable
from deltaworks.topology.nodes import CustomSink
from deltaworks.topology.sinks import SinkWriter
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.fault_points import WORKER
from tests.support.live_stack import LiveStack, password_of

SCHEMA = "sink_tests"


class Line(msgspec.Struct, frozen=True):
    item: str
    price: Decimal


class Order(msgspec.Struct, frozen=True):
    city: str | None
    price: Annotated[Decimal, DecimalDigits(10, 2)]
    at: datetime
    day: date
    big: int
    ratio: float
    paid: bool
    raw: bytes
    lines: list[Line]


ORDER = Order(
    city="Ütrecht",
    price=Decimal("1.50"),
    at=datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
    day=date(2026, 3, 1),
    big=2**40,
    ratio=0.1,
    paid=True,
    raw=b"\x00",
    lines=[Line("a'", Decimal("1"))],
)


@pytest.fixture
def url(postgres: LiveStack) -> Iterator[str]:
    settings = postgres.settings
    url = f"postgresql://127.0.0.1:{settings.postgres_port}/deltaworks"
    with psycopg.connect(conninfo(postgres)) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}")
    yield url
    while _opened:
        _opened.pop().close()
    with psycopg.connect(conninfo(postgres)) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def conninfo(stack: LiveStack) -> str:
    settings = stack.settings
    return (
        f"host=127.0.0.1 port={settings.postgres_port} user=deltaworks dbname=deltaworks passfile={settings.pgpass} "
        f"options='-c search_path={SCHEMA},public -c timezone=UTC'"
    )


@pytest.fixture
def rows(postgres: LiveStack, url: str) -> Any:
    def ask(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(conninfo(postgres)) as connection:
            found = connection.execute(statement)
            return [] if found.description is None else found.fetchall()

    return ask


@pytest.fixture
def password(postgres: LiveStack, tmp_path: Path) -> dict[str, str]:
    """Where it is, as a pipeline says it."""
    (tmp_path / "password").write_text(password_of(postgres.settings, "deltaworks"))
    return {"file": str(tmp_path / "password")}


@pytest.fixture
def login(url: str, password: dict[str, str]) -> dict[str, Any]:
    return {"url": url, "username": "deltaworks", "password": password, "schema": SCHEMA}


def sink_of(login: dict[str, Any], kind: Any = str, table: str = "orders", **settings: Any) -> JdbcTable:
    def topology(builder: StreamsBuilder) -> None:
        settings.setdefault("create_table", True)
        builder.stream("in", key=str, value=kind).to_jdbc(table, **login, **settings)

    (node,) = [n for n in Pipeline(name="p", topology=topology).plan().nodes if isinstance(n, CustomSink)]
    assert isinstance(node.sink, JdbcTable)
    return node.sink


_opened: list[SinkWriter[Any, Any]] = []


def writer(sink: JdbcTable, checkpoint: str = "c", generation: int = 1) -> SinkWriter[Any, Any]:
    task = SinkTask(pipeline="p", sink="s", task=0, checkpoint=checkpoint, generation=generation)
    _opened.append(sink.open(task))
    return _opened[-1]


def write(to: SinkWriter[Any, Any], batch: int, *records: tuple[Any, Any]) -> None:
    """Writes a batch as a task does; one that is there is left alone."""
    done = to.committed()
    if done is not None and done.batch >= batch:
        return to.abort()
    to.write(SinkBatch(batch, f"i{batch}"), [SinkRecord(key, value, 61_005, ()) for key, value in records])
    to.prepare()
    return to.commit()


def test_all_types_come_back(login: dict[str, Any], rows: Any) -> None:
    to = writer(sink_of(login, Order, timestamp_column="updated"))

    write(to, 0, ("a", ORDER), ("b", msgspec.structs.replace(ORDER, city=None)), ("c", ORDER))
    write(to, 1, ("a", msgspec.structs.replace(ORDER, big=1)), ("c", None), ("d", ORDER), ("d", None))

    assert rows("SELECT * FROM orders ORDER BY key") == [
        (
            key,
            city,
            ORDER.price,
            ORDER.at,
            ORDER.day,
            big,
            0.1,
            True,
            b"\x00",
            [{"item": "a'", "price": price}],
            updated,
        )
        for key, city, big in (("a", "Ütrecht", 1), ("b", None, 2**40))
        for price, updated in [("1.000000000000000000", datetime(1970, 1, 1, 0, 1, 1, 5_000, tzinfo=UTC))]
    ]


def test_windows_have_their_times_in_the_key(login: dict[str, Any], rows: Any) -> None:
    def topology(builder: StreamsBuilder) -> None:
        from datetime import timedelta

        from deltaworks import TimeWindows

        windows = TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))
        counts = builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows).count(store="counts")
        counts.to_jdbc("counts", **login, key="user", value="visits", create_table=True)

    (node,) = [n for n in Pipeline(name="p", topology=topology).plan().nodes if isinstance(n, CustomSink)]
    assert isinstance(node.sink, JdbcTable)
    to = writer(node.sink)

    write(to, 0, (Windowed("a", 0, 60_000), 1), (Windowed("a", 60_000, 120_000), 1))
    write(to, 1, (Windowed("a", 0, 60_000), 2), (Windowed("a", 60_000, 120_000), None))

    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert rows("SELECT * FROM counts") == [("a", start, start.replace(minute=1), 2)]


def test_a_batch_is_recognised_by_a_worker_that_knows_nothing(login: dict[str, Any], rows: Any) -> None:
    sink = sink_of(login, mode="append")
    for _ in range(2):
        to = writer(sink)
        write(to, 0, ("a", "x"), ("a", "x"))

    assert rows("SELECT * FROM orders") == [("a", "x"), ("a", "x")]
    again = writer(sink)
    assert again.committed() == SinkBatch(0, "i0")


def test_rows_and_progress_are_one_transaction(login: dict[str, Any], rows: Any) -> None:
    to = writer(sink_of(login))
    to.committed()
    to.write(SinkBatch(0, "i"), [SinkRecord("a", "x", 0, ())])
    to.prepare()
    assert rows("SELECT * FROM orders") == []

    to.abort()
    assert to.committed() is None
    assert rows("SELECT * FROM orders") == []


def test_another_worker_of_the_task_waits_for_the_one_that_writes(login: dict[str, Any], rows: Any) -> None:
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
    assert rows("SELECT * FROM orders") == [("a", "x")]


def test_an_earlier_generation_writes_nothing_any_more(login: dict[str, Any], rows: Any) -> None:
    sink = sink_of(login)
    believed_dead = writer(sink, generation=1)
    write(believed_dead, 0, ("a", "old"))
    write(writer(sink, "another", generation=2), 0, ("a", "new"))

    with pytest.raises(FencedError, match="Generation 2 of the stream has written to table 'orders'"):
        write(believed_dead, 1, ("a", "old"))

    assert rows("SELECT * FROM orders") == [("a", "new")]


def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(login: dict[str, Any], rows: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no table 'sink_tests.orders' to write to"):
        writer(sink_of(login, create_table=False))
    rows(
        "CREATE TABLE orders (key text, city int, price numeric(8, 2), at timestamp, day date, big bigint, ratio real, "
        "must text NOT NULL, paid text, raw bytea)"
    )

    with pytest.raises(ConfigurationError) as raised:
        writer(sink_of(login, Order))

    message = str(raised.value)
    for problem in (
        "column 'city' is INTEGER, not TEXT",
        "column 'price' is NUMERIC(8, 2), not NUMERIC(10, 2)",
        "column 'at' is TIMESTAMP WITHOUT TIME ZONE, not TIMESTAMP WITH TIME ZONE",
        "column 'ratio' is REAL, not DOUBLE PRECISION",
        "column 'paid' is TEXT, not BOOLEAN",
        "it has no column 'lines' (JSONB)",
        "column 'must' (TEXT) is NOT NULL",
        "(key) is neither its primary key nor unique",
    ):
        assert problem in message
    assert "'day'" not in message and "'raw'" not in message and "'big'" not in message


def test_a_table_of_somebody_else_may_have_more_columns(login: dict[str, Any], rows: Any) -> None:
    rows(
        "CREATE TABLE orders (id serial, key varchar(40) UNIQUE, value text, note text, "
        "made timestamptz NOT NULL DEFAULT now())"
    )
    to = writer(sink_of(login, create_table=False))

    write(to, 0, ("a", "x"))
    rows("UPDATE orders SET note = 'mine'")
    write(to, 1, ("a", "y"))

    assert rows("SELECT key, value, note FROM orders") == [("a", "y", "mine")]


def test_what_the_database_refuses_fails_the_batch_in_its_own_words(login: dict[str, Any], rows: Any) -> None:
    rows("CREATE TABLE orders (key varchar(3) PRIMARY KEY, value text CHECK (value <> 'bad'))")
    to = writer(sink_of(login, create_table=False))

    with pytest.raises(SinkError, match="value too long for type character varying"):
        write(to, 0, ("a", "x"), ("long key", "x"))
    with pytest.raises(SinkError, match="violates check constraint"):
        write(to, 0, ("a", "bad"))
    write(to, 0, ("a", "x"))

    assert rows("SELECT * FROM orders") == [("a", "x")]


def test_a_wrong_password_is_said_and_not_shown(login: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "w-r-o-n-g")
    with pytest.raises(
        SinkError, match=r"cannot be opened: OperationalError: .*password authentication failed"
    ) as raised:
        writer(sink_of({**login, "password": {"env": "WRONG"}}))
    assert "w-r-o-n-g" not in str(raised.value)


POINTS = (*WORKER, "sink.written", "sink.before_commit", "sink.after_commit")
RECORDS = 150
COUNTS = Counter(f"w{number % 7}" for number in range(RECORDS))


def run(settings: Settings, login: dict[str, Any], seed: int, points: Sequence[str]) -> InProcessStream:
    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        counts = words.group_by(lambda _, word: word, key=str).count(store="counts")
        counts.to_jdbc("counts", **login, create_table=True)
        counts.to_stream().to_jdbc("updates", **login, mode="append", create_table=True)
        counts.to_stream().map_values(str, value=str).to("counted")

    kafka = MemoryKafka({"words": 2, "counted": 2})
    for number in range(RECORDS):
        kafka.write("words", RawRecord(f"k{number}".encode(), f"w{number % 7}".encode(), 1_000 + number))
    rng = random.Random(seed)
    pipeline = Pipeline(name="jdbc", topology=topology, record_cache=False)
    stream = InProcessStream(pipeline, settings, kafka=kafka)

    def failures(batch_id: int) -> list[str]:
        if batch_id % 4 == 1:
            stream.lose_worker()
        left = sorted({*points} - stream.failed_at)
        return rng.sample(left, min(2, len(left)))

    stream.run_to_the_end(rng, 12, failures)
    stream.close()
    return stream


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path / "home")


def test_rows_are_exact_whatever_fails(settings: Settings, login: dict[str, Any], rows: Any) -> None:
    stream = run(settings, login, 0, POINTS)

    assert {"sink.written", "sink.before_commit", "sink.after_commit"} <= stream.failed_at
    assert Counter(rows("SELECT * FROM counts")) == Counter(COUNTS.items())
    assert Counter(rows("SELECT * FROM updates")) == Counter(
        (word, nth) for word, count in COUNTS.items() for nth in range(1, count + 1)
    )


def test_without_the_progress_rows_come_twice(
    settings: Settings, login: dict[str, Any], rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test before sees what it is for."""
    committed = JdbcWriter.committed
    monkeypatch.setattr(JdbcWriter, "committed", lambda self: (committed(self), None)[1])

    run(settings, login, 0, POINTS)

    assert len(rows("SELECT * FROM updates")) > RECORDS
