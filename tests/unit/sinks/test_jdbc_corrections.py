"""Rows of a database are corrected once, between the batches of a stream; here in SQLite, which knows no locks of rows.

`tests/integration/test_jdbc_corrections.py` does so in PostgreSQL, beside a task that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from deltaworks import Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder
from deltaworks.errors import SinkError
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.sinks import jdbc
from deltaworks.sinks.jdbc import JdbcWriter
from deltaworks.sinks.jdbc_corrections import JdbcCorrections
from deltaworks.sinks.row_changes import RowChanges
from deltaworks.topology.external import JdbcTable
from deltaworks.topology.nodes.sinks import DeltaSink
from deltaworks.topology.published_sinks import at_publish


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    """SQLite in the place of PostgreSQL, whose types and waiting it does not know."""
    place, options = f"sqlite:///{tmp_path}/shop.db", {"timeout": 0.05}
    engine = sa.create_engine(place, poolclass=sa.pool.NullPool, connect_args=options)
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    monkeypatch.setattr(jdbc, "engine", lambda sink: engine)
    monkeypatch.setattr(jdbc, "check", lambda *_: None)
    monkeypatch.setattr(JdbcWriter, "prepare", lambda self: None)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE totals (id TEXT PRIMARY KEY, value BIGINT CHECK (value < 1000))")
    yield engine
    engine.dispose()


def nodes() -> tuple[JdbcTable, DeltaSink]:
    def topology(builder: StreamsBuilder) -> None:
        table = builder.table("in", key=str, value=int, store="t")
        table.to_delta("totals", key="word", value="total")
        table.to_jdbc("totals", url="postgresql://db.example.com/shop", key="id")

    (sink,) = at_publish(Pipeline(name="p", topology=topology).plan().nodes)
    assert isinstance(sink.node.sink, JdbcTable) and sink.table is not None and sink.why is None
    return sink.node.sink, sink.table


def corrections() -> JdbcCorrections:
    sink, table = nodes()
    return JdbcCorrections(sink, table, pipeline="p", name="jdbc-totals", checkpoint="c", tasks=2)


def rows(**totals: int) -> pa.Table:
    """As they come out of the table `totals`."""
    return pa.table(
        {
            "word": pa.array(list(totals), pa.string()),
            "total": pa.array(list(totals.values()), pa.int64()),
            "timestamp": pa.array([0] * len(totals), pa.int64()).cast(TIMESTAMP),
        }
    )


def changed(now: dict[str, int], gone: Iterable[str] = ()) -> Callable[[], list[RowChanges]]:
    return lambda: [RowChanges(rows(**now), rows(**dict.fromkeys(gone, 0)))]


def write(batch: int, records: dict[str, int | None], task: int = 0) -> None:
    """A batch of a task of the stream."""
    writer = nodes()[0].open(SinkTask(pipeline="p", sink="jdbc-totals", task=task, checkpoint="c", generation=1))
    writer.committed()
    writer.write(SinkBatch(batch, f"i{batch}"), [SinkRecord(key, value, 0, ()) for key, value in records.items()])
    writer.commit()
    writer.close()


def there(database: sa.Engine) -> dict[str, int]:
    with database.connect() as connection:
        found = connection.exec_driver_sql("SELECT id, value FROM totals ORDER BY id")
        return {row.id: row.value for row in found}


def test_rows_are_replaced_added_and_deleted(database: sa.Engine) -> None:
    write(3, {"a": 1, "b": 2, "c": 3})

    assert corrections().correct(0, "d", changed({"a": 10, "new": 5}, ["b"]), lambda: 3) == []

    assert there(database) == {"a": 10, "c": 3, "new": 5}


def test_a_transaction_is_carried_out_once(database: sa.Engine) -> None:
    write(3, {"a": 1})
    corrections().correct(0, "d", changed({"a": 10}), lambda: 3)
    corrections().correct(1, "d", changed({"b": 10}), lambda: 3)
    write(4, {"a": 2, "b": 2})

    for number in (0, 1):
        corrections().correct(number, "d", changed({"a": 10, "b": 10}), lambda: 4)
    assert there(database) == {"a": 2, "b": 2}

    corrections().correct(0, "of a rollback", changed({"a": 1}), lambda: 4)
    assert there(database) == {"a": 1, "b": 2}


@pytest.mark.parametrize("task", [0, 1])
def test_a_batch_that_only_the_database_has_is_waited_for(database: sa.Engine, task: int) -> None:
    write(3, {"a": 1})
    write(4, {"a": 2}, task)

    with pytest.raises(SinkError, match="The stream has written batch 4 to table 'totals', and has not committed it"):
        corrections().correct(0, "d", changed({"a": 10}), lambda: 3)
    assert there(database) == {"a": 2}

    corrections().correct(0, "d", changed({"a": 10}), lambda: 4)
    assert there(database) == {"a": 10}


def test_rows_of_the_progress_that_are_there_are_not_inserted_again(database: sa.Engine) -> None:
    """MySQL would share their locks, and a task and a correction would end each other."""
    write(3, {"a": 1})
    corrections().correct(0, "d", changed({"a": 10}), lambda: 3)
    inserted: list[str] = []
    sa.event.listen(database, "before_cursor_execute", lambda *about: inserted.append(about[2]))

    write(4, {"a": 2})
    corrections().correct(1, "d", changed({"a": 10}), lambda: 4)

    assert there(database) == {"a": 10}
    assert not [each for each in inserted if each.startswith("INSERT INTO deltaworks_sink_progress")]


def test_what_is_changed_is_asked_when_nobody_else_writes(database: sa.Engine) -> None:
    write(3, {"a": 1})
    asked: list[str] = []

    def parts() -> list[RowChanges]:
        with database.connect() as other, pytest.raises(sa.exc.OperationalError, match="locked"):
            other.exec_driver_sql("UPDATE totals SET value = 0")
        asked.append("parts")
        return changed({"a": 10})()

    def last_batch() -> int:
        asked.append("last batch")
        return 3

    corrections().correct(0, "d", parts, last_batch)

    assert asked == ["last batch", "parts"]


def test_a_failure_leaves_nothing_half_done(database: sa.Engine) -> None:
    write(3, {"a": 1, "b": 1})

    def failing() -> Iterator[RowChanges]:
        yield from changed({"a": 10})()
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        corrections().correct(0, "d", failing, lambda: 3)
    assert there(database) == {"a": 1, "b": 1}

    corrections().correct(0, "d", changed({"a": 10}), lambda: 3)
    assert there(database) == {"a": 10, "b": 1}


def test_rows_that_the_database_refuses_are_told_and_the_others_written(database: sa.Engine) -> None:
    write(3, {"a": 1, "b": 1})

    refused = corrections().correct(0, "d", changed({"a": 10, "b": 5_000, "c": 20}), lambda: 3)

    assert len(refused) == 1 and refused[0].startswith("Table 'totals' refuses a row: IntegrityError: CHECK")
    assert there(database) == {"a": 10, "b": 1, "c": 20}


def test_a_row_that_others_refer_to_is_refused_and_holds_up_nothing(database: sa.Engine) -> None:
    write(3, {"a": 1, "b": 1, "c": 1})
    sa.event.listen(database, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE details (id TEXT REFERENCES totals (id))")
        connection.exec_driver_sql("INSERT INTO details VALUES ('b')")

    refused = corrections().correct(0, "d", changed({"new": 5}, ["a", "b", "c"]), lambda: 3)

    assert len(refused) == 1 and "FOREIGN KEY" in refused[0]
    assert there(database) == {"b": 1, "new": 5}


def test_what_is_refused_is_noted_before_the_commit_after_which_nobody_is_told_again(database: sa.Engine) -> None:
    write(3, {"a": 1})
    noted: list[list[str]] = []

    def failing(refused: list[str]) -> None:
        noted.append(refused)
        raise RuntimeError("killed")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            corrections().correct(0, "d", changed({"a": 10, "b": 5_000}), lambda: 3, failing)
    assert there(database) == {"a": 1}
    corrections().correct(0, "d", changed({"a": 10, "b": 5_000}), lambda: 3, noted.append)

    assert corrections().correct(0, "d", changed({"a": 10, "b": 5_000}), lambda: 3, noted.append) == []
    assert len(noted) == 3 and all(len(each) == 1 for each in noted)


def test_a_database_that_does_not_answer_is_said(database: sa.Engine) -> None:
    made: Any = corrections()
    with database.begin() as connection:
        connection.exec_driver_sql("DROP TABLE totals")

    with pytest.raises(SinkError, match="Table 'totals' takes no corrections: OperationalError: no such table"):
        made.correct(0, "d", changed({"a": 10}), lambda: 3)
