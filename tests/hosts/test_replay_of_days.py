"""A replay of some days reads what they depend on, and says the same of them as one of all history."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import DeadLetters, Pipeline, SessionWindows, StreamsBuilder, TimeWindows
from deltaworks.errors import RecordsGoneError, TableError
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.replay import runs
from deltaworks.replay.model import PHASES
from deltaworks.replay.plan import DAY_MS
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.beside import Beside, Rows, stand_beside
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.hosts.replays import steps_of, tables_of

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
HOUR_MS = 3_600_000
FIRST_DAY = 20_513
KEYS = [f"k{number}" for number in range(12)]


def day(number: int) -> int:
    return (FIRST_DAY + number) * DAY_MS


def topology(size: int = 1, *, gap: timedelta = 2 * MINUTE) -> Callable[[StreamsBuilder], None]:
    """Payments with the names of their accounts, in windows, in sessions, one by one; some cannot be read."""

    def build(builder: StreamsBuilder) -> None:
        names = builder.table("names", key=str, value=str, store="names")
        payments = (
            builder.stream("payments", key=str, value=bytes, name="payments-in")
            .map_values(int, value=int, name="amount")
            .map_values(lambda amount: amount * size, value=int, name="counted")
            .join(names, lambda amount, name: f"{name}:{amount}", value=str, name="named")
        )
        payments.to_delta("named")
        by_key = payments.group_by_key()
        by_key.windowed_by(TimeWindows(size=6 * HOUR, grace=HOUR, advance=2 * HOUR)).reduce(
            lambda all_of_them, payment: f"{all_of_them} {payment}", store="exchanges-store"
        ).to_delta("exchanges")
        moved = payments.group_by(lambda _, payment: payment.partition(":")[0], key=str, name="by-name")
        moved.windowed_by(TimeWindows(size=HOUR, grace=HOUR)).count(store="hours-store").to_delta("hours")
        sessions = SessionWindows(gap=gap, grace=HOUR)
        by_key.windowed_by(sessions).count(store="visits-store").to_delta("visits")

    return build


def streamed(home: Path, seed: int) -> InProcessStream:
    """Six days, in random batches; one record in ten comes up to five hours late, or a day early."""
    rng = random.Random(seed)
    kafka = MemoryKafka({"payments": 3, "names": 3})
    now_ms = day(0) + 2 * HOUR_MS
    for _ in range(1_500):
        now_ms += rng.randrange(600_000)
        key = rng.choice(KEYS)
        apart_ms = rng.choice([-rng.randrange(5 * HOUR_MS), rng.randrange(DAY_MS)]) if rng.random() < 0.1 else 0
        if rng.random() < 0.1:
            kafka.write("names", RawRecord(key.encode(), rng.choice(KEYS).encode(), now_ms + apart_ms))
        amount = b"none" if rng.random() < 0.05 else b"%d" % rng.randrange(100)
        kafka.write("payments", RawRecord(key.encode(), amount, now_ms + apart_ms))
    for partition in range(3):  # time goes on everywhere, so that days end
        key = next(key for key in map(str, range(99)) if kafka_partition(kafka, key) == partition)
        kafka.write("payments", RawRecord(key.encode(), b"1", now_ms + 2 * DAY_MS))
        kafka.write("names", RawRecord(key.encode(), key.encode(), day(0)))
    settings = replace(Settings.from_environment({}), home=home)
    pipeline = Pipeline(
        name="payments", topology=topology(), on_error="continue", dead_letters=DeadLetters(table="letters")
    )
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run_to_the_end(rng, 40, elsewhere=None)
    return stream


def kafka_partition(kafka: MemoryKafka, key: str) -> int:
    from deltaworks.kernel.partitioning import partition_of

    return partition_of(key.encode(), kafka.count("payments"))


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    return stand_beside(streamed(tmp_path, 1), monkeypatch)


def of_days(rows: Rows, first: int, end: int) -> Rows:
    """The rows that a publish of these days would take."""

    def at(time: datetime) -> int:
        return int(time.timestamp() * 1000)

    found = {}
    for table in ("named", "exchanges", "hours", "visits", "letters"):
        time = "window_start" if table in ("exchanges", "hours", "visits") else "timestamp"
        found[table] = [row for row in rows[table] if first <= at(row[time]) < end]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_days_are_read_from_what_they_depend_on_and_equal_production(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    beside = stand_beside(streamed(tmp_path, seed), monkeypatch)
    before = beside.rows()
    records = []
    for number in range(1, 5):
        run = beside.start(from_ms=day(number), to_ms=day(number + 1))
        plan = run.plan
        assert plan.begin is not None and plan.begin.topics == ("names",)
        assert f"batches {plan.begin.batch} to {plan.last_batch} (of those before, names)" in plan.extent
        beside.advance(run, "compare")
        comparison = msgspec.json.decode(run.paths.comparison.read_bytes(), type=Comparison)
        assert comparison.equal
        assert all(table.rows.production for table in comparison.tables)
        assert beside.advance(run) == list(PHASES)
        records.append(plan.records)
    assert beside.rows() == before
    assert records == sorted(records, reverse=True) and records[-1] < records[0] - 300


def test_other_code_says_of_the_days_what_it_says_in_a_replay_of_all_history(beside: Beside) -> None:
    beside.pipeline = replace(beside.pipeline, topology=topology(2))
    found = []
    for from_ms in (day(2), None):
        run = beside.start(from_ms=from_ms, to_ms=day(4))
        beside.advance(run, "run")
        rows, first = tables_of(run.paths.tables, beside.pipeline), run.paths.read_state().from_ms
        assert first is None or first <= day(2)
        found.append(of_days(rows, day(2), day(4)))
        runs.discard(beside.settings, run.plan.run_id)

    assert found[0] == found[1]
    assert found[0] != of_days(beside.rows(), day(2), day(4))


def test_what_kafka_has_removed_by_age_is_not_missed(beside: Beside) -> None:
    run = beside.start(from_ms=day(3), tables=("hours",))
    runs.discard(beside.settings, run.plan.run_id)
    kafka = beside.broker.kafka
    for step in steps_of(beside.stream):
        if run.plan.begin is not None and step.batch < run.plan.begin.batch:
            kafka.removed |= {(each.topic, each.partition): each.stop for each in step.ranges if each.topic != "names"}
    assert len(kafka.removed) == 3

    beside.broker.removed_when_ms = run.plan.created_ms - day(3) + 2 * HOUR_MS
    again = beside.start(from_ms=day(3), tables=("hours",))
    assert again.plan.begin == run.plan.begin
    beside.advance(again, "compare")
    assert again.paths.read_state().differences == 0
    runs.discard(beside.settings, again.plan.run_id)

    beside.broker.removed_when_ms = None  # somebody has removed them, however old they were
    unknown = beside.start(from_ms=day(3), tables=("hours",))
    with pytest.raises(RecordsGoneError, match="out of range"):
        beside.advance(unknown, "run")


def test_days_that_depend_on_all_history_say_why(beside: Beside) -> None:
    build: Any = beside.pipeline.topology

    def with_totals(builder: StreamsBuilder) -> None:
        build(builder)
        totals = builder.stream("payments", key=str, value=bytes, name="again").group_by_key().count(store="totals")
        totals.to_stream().to_delta("totals")

    beside.pipeline = replace(beside.pipeline, topology=with_totals)
    everything = beside.start(tables=("visits",)).plan.records

    plan = beside.start(from_ms=day(3), tables=("totals",)).plan
    assert plan.begin is None and plan.records == everything
    (note,) = plan.notes
    assert note.startswith("All history is read: ") and "results without a window" in note
    hours = beside.start(from_ms=day(3), tables=("hours",)).plan
    assert hours.notes == [] and hours.records < everything


def test_sessions_that_reach_back_further_than_those_of_production_are_refused(beside: Beside) -> None:
    beside.pipeline = replace(beside.pipeline, topology=topology(gap=6 * HOUR))
    run = beside.start(from_ms=day(3), tables=("visits",))

    with pytest.raises(TableError, match="Sessions of the replay reach back") as raised:
        beside.advance(run, "run")
    assert f"deltaworks discard {run.plan.run_id}" in str(raised.value)
