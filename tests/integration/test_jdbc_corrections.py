"""A published replay and its rollback, as a table of a real PostgreSQL shows them, beside a stream that writes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from deltaworks import DecimalDigits, Pipeline, StreamsBuilder, TimeWindows, faults
from deltaworks.control import sink_corrections
from deltaworks.errors import SinkError
from deltaworks.replay import handover
from deltaworks.replay.model import PHASES
from deltaworks.replay.plan import DAY_MS
from deltaworks.settings import Settings
from deltaworks.sinks.jdbc_corrections import JdbcCorrections
from deltaworks.sinks.row_changes import RowChanges
from deltaworks.testing.topics import RawRecord
from tests.hosts.beside import Beside, stand_beside
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.test_sink_corrections import DAYS, FIRST_DAY, WORDS, going_on, publish
from tests.integration.test_jdbc_sink import login, password, rows, sink_of, url, write, writer
from tests.support.kills import Killed, kill_at
from tests.unit.sinks.test_jdbc_corrections import nodes
from tests.unit.sinks.test_jdbc_corrections import rows as table_of

__all__ = ["login", "password", "rows", "url"]  # fixtures


class Part(msgspec.Struct, frozen=True):
    name: str
    price: Decimal


class Total(msgspec.Struct, frozen=True):
    words: int
    price: Annotated[Decimal, DecimalDigits(10, 2)]
    at: datetime
    note: str | None
    parts: list[Part]


def total(word: str, count: int, *, fixed: bool) -> Total:
    wrong = word == "w1" and not fixed
    price = Decimal(count) / 4
    at = datetime(2026, 3, 1, 0, 0, 0, count, tzinfo=UTC)
    return Total(-count if wrong else count, price, at, None if count % 2 else word, [Part(word, price)])


def topology(login: dict[str, Any], *, fixed: bool) -> Callable[[StreamsBuilder], None]:
    """As that of the tests with an index, with other types."""

    def build(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        known = words.filter(lambda _, word: word != ("w2" if fixed else "w3"), name="known")
        by_word = known.group_by(lambda _, word: word, key=str, name="by-word")
        totals = by_word.count(store="counts").map_values_with_key(
            lambda word, count: total(word, count, fixed=fixed), value=Total, name="totals"
        )
        totals.to_delta("totals")
        totals.to_jdbc("totals", key="word", timestamp_column="updated", create_table=True, **login)
        hours = by_word.windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(hours=1)))
        counts = hours.count(store="hours-store")
        counts.to_delta("hours")
        counts.to_jdbc("hours", value="words", create_table=True, **login)

    return build


@pytest.fixture
def beside(tmp_path: Path, login: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    rng = random.Random(3)
    kafka = MemoryKafka({"words": 2})
    for time_ms in range(FIRST_DAY * DAY_MS, (FIRST_DAY + DAYS) * DAY_MS, 3_600_000):
        kafka.write("words", RawRecord(b"k%d" % rng.randrange(5), rng.choice(WORDS).encode(), time_ms))
    settings = replace(Settings.from_environment({}), home=tmp_path / "home")
    pipeline = Pipeline(name="words", topology=topology(login, fixed=False), record_cache=False)
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run_to_the_end(rng, 20, elsewhere=None)
    stream.worker.close()
    found = stand_beside(stream, monkeypatch)
    found.pipeline = replace(found.pipeline, topology=topology(login, fixed=True))
    yield found
    faults.arm(None)
    stream.close()


def expected(beside: Beside) -> tuple[list[Any], list[Any]]:
    """The rows that the tables say."""
    found = beside.rows()
    totals = [
        (
            row["key"],
            row["words"],
            row["price"],
            row["at"],
            row["note"],
            [{"name": part["name"], "price": str(part["price"])} for part in row["parts"]],
            row["timestamp"],
        )
        for row in found["totals"]
    ]
    hours = [(row["key"], row["window_start"], row["window_end"], row["value"]) for row in found["hours"]]
    return sorted(totals), sorted(hours)


def there(rows: Any) -> tuple[list[Any], list[Any]]:
    return sorted(rows("SELECT * FROM totals")), sorted(rows("SELECT * FROM hours"))


def test_rows_follow_a_publication_and_its_rollback(beside: Beside, rows: Any) -> None:
    before = there(rows)
    assert before == expected(beside), "as the stream has left them"

    run = publish(beside)

    after = there(rows)
    assert after == expected(beside)
    assert all(one != other for one, other in zip(before, after, strict=True))
    handover.take_back(beside.settings, run, requested_by="a test")
    assert there(rows) == before == expected(beside)


@pytest.mark.parametrize("point", ["sinks.before_transaction", "sinks.after_transaction"])
def test_what_the_stream_writes_meanwhile_stays(beside: Beside, rows: Any, point: str) -> None:
    """Whoever corrects is killed before, or after the rows are there and before that is noted; the stream goes on."""
    run = beside.start(tables=("totals", "hours"))
    beside.advance(run, "gate")
    kill_at(point, 1)
    with pytest.raises(Killed):
        beside.advance(run)
    before = {row[0]: row for row in there(rows)[0]}
    stream = going_on(beside)
    stream.run(stream.end())
    stream.committer.refresh_snapshots(force=True)
    stream.close()
    sent = {row[0]: row for row in there(rows)[0] if before.get(row[0]) != row}
    assert set(sent) == {"w0", "w1", "w2"}, "the words that have come, as the code of before counts them"

    assert beside.advance(run) == list(PHASES)

    assert there(rows) == expected(beside)
    assert {row[0]: row for row in there(rows)[0] if row[0] in sent} == sent


def test_a_batch_that_is_not_committed_everywhere_is_waited_for(
    beside: Beside, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_corrections, "_PATIENCE_S", 0.1)
    run = beside.start(tables=("totals", "hours"))
    before = there(rows)
    newest = rows("SELECT max(batch) FROM deltaworks_sink_progress")[0][0]
    rows(f"UPDATE deltaworks_sink_progress SET batch = {newest + 5} WHERE id LIKE 'words/jdbc-totals/%/test'")

    with pytest.raises(SinkError, match=r"The stream has written batch .* to table 'totals'"):
        beside.advance(run)
    totals, hours = there(rows)
    assert totals == before[0]
    assert hours == expected(beside)[1] != before[1], "the other sink does not wait"

    rows(f"UPDATE deltaworks_sink_progress SET batch = {newest} WHERE id LIKE 'words/jdbc-totals/%/test'")
    beside.advance(run)
    assert there(rows) == expected(beside)


def test_a_task_and_a_correction_wait_for_each_other(login: dict[str, Any], rows: Any) -> None:
    sink = sink_of(login, int)
    write(writer(sink), 0, ("a", 1))
    made = JdbcCorrections(sink, nodes()[1], pipeline="p", name="s", checkpoint="c", tasks=1)
    inside, go, wrote = threading.Event(), threading.Event(), threading.Event()

    def parts() -> Iterator[RowChanges]:
        inside.set()
        assert go.wait(20)
        yield RowChanges(table_of(a=10, b=10), table_of())

    def correct() -> None:
        made.correct(0, "d", parts, lambda: 0)

    def task() -> None:
        write(writer(sink), 1, ("a", 2))
        wrote.set()

    threads = [threading.Thread(target=each, daemon=True) for each in (correct, task)]
    threads[0].start()
    assert inside.wait(20)
    threads[1].start()
    assert not wrote.wait(0.5), "the task did not wait"
    go.set()
    for thread in threads:
        thread.join(20)
    made.close()
    assert wrote.is_set()
    assert sorted(rows("SELECT * FROM orders")) == [("a", 2), ("b", 10)]
