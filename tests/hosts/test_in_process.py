"""The streaming host's tasks: global tables, records that go in a cycle, ticks, partitions that a topology chooses."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from deltaworks import (
    EmitStrategy,
    Pipeline,
    Processor,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topic,
)
from deltaworks.errors import KafkaWriteError
from deltaworks.files import lock, unlock
from deltaworks.settings import Settings
from deltaworks.spark.source import TICK
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka, MemorySink

Build = Callable[[StreamsBuilder], None]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def pipeline(topology: Build, **options: Any) -> Pipeline:
    return Pipeline(name="under-test", topology=topology, **options)


def sent(kafka: MemoryKafka, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for _, _, record in kafka.read(topic)]


def number(value: int) -> bytes:
    """As the serde of `int` writes it."""
    return value.to_bytes(8, "big")


def write(kafka: MemoryKafka, topic: str, *records: tuple[str, str | None]) -> None:
    for key, value in records:
        kafka.write(topic, RawRecord(key.encode(), None if value is None else value.encode(), 1_000))


def test_a_global_table_is_seen_as_of_the_start_of_the_batch(settings: Settings) -> None:
    def topology(builder: StreamsBuilder) -> None:
        names = builder.global_table("names", key=str, value=str, store="names")
        stream = builder.stream("ids", key=str, value=str)
        stream.join(names, lambda value, name: f"{value}={name}", selector=lambda _, value: value, value=str).to("out")

    kafka = MemoryKafka({"ids": 4, "names": 2})
    write(kafka, "names", ("1", "ann"), ("2", "bob"))
    write(kafka, "ids", ("a", "1"), ("b", "2"))
    stream = InProcessStream(pipeline(topology), settings, kafka=kafka)
    stream.run(stream.end())
    first = stream.end()
    write(kafka, "names", ("1", "anna"), ("2", None))
    write(kafka, "ids", ("c", "1"), ("d", "2"))
    stream.run(stream.end(), ["task.processed", "driver.after_tables"])
    assert sorted(sent(kafka, "out")) == [(b"a", b"1=ann"), (b"b", b"2=bob"), (b"c", b"1=anna")]

    # An older batch that runs again sees the rows of its time.
    stream.worker.open_globals(msgspec.msgpack.encode({"names": first["names"]}))
    assert stream.worker.globals is not None
    store: Any = stream.worker.globals.stores["names"]
    assert [store.get("1"), store.get("2")] == ["ann", "bob"]
    stream.close()


def test_a_global_table_does_not_wait_for_an_older_generation(settings: Settings) -> None:
    """Its process may be suspended while it reads the topic."""

    def topology(builder: StreamsBuilder) -> None:
        names = builder.global_table("names", key=str, value=str, store="names")
        builder.stream("ids", key=str, value=str).join(
            names, lambda _, name: name, selector=lambda _, value: value, value=str
        ).to("out")

    kafka = MemoryKafka({"ids": 1, "names": 1})
    write(kafka, "names", ("1", "ann"))
    write(kafka, "ids", ("a", "1"))
    stream = InProcessStream(pipeline(topology), settings, kafka=kafka)
    config = stream.worker.config
    older = config.local_folder / f"global-{config.generation - 1}.lock"
    older.parent.mkdir(parents=True, exist_ok=True)
    with older.open("w") as file:
        assert lock(file)
        patience = threading.Timer(10.0, unlock, [file])
        patience.start()
        stream.run(stream.end())
        assert patience.is_alive(), "it waited for the older generation"
        patience.cancel()
    assert sent(kafka, "out") == [(b"a", b"ann")]
    assert not older.exists()
    stream.close()


def foreign_keys(builder: StreamsBuilder) -> None:
    orders = builder.table("orders", key=str, value=str, store="orders")
    users = builder.table("users", key=str, value=str, store="users")
    joined = orders.left_join(
        users,
        lambda user, name: f"{user}:{name}",
        foreign_key=lambda _, user: user,
        value=str,
        store="joined",
        name="by-user",
    )
    joined.to_stream().to("out")
    joined.to_delta("joined")


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_records_that_go_in_a_cycle_survive_failures(settings: Settings, seed: int, shards: int) -> None:
    rng = random.Random(seed)
    kafka = MemoryKafka({"orders": 3, "users": 3, "out": 2})
    rows: dict[str, str] = {}
    names: dict[str, str] = {}
    for number in range(60):
        order, user = f"o{rng.randrange(12)}", f"u{rng.randrange(5)}"
        write(kafka, "orders", (order, user))
        rows[order] = user
        if number % 3 == 0:
            names[user] = f"n{number}"
            write(kafka, "users", (user, names[user]))
    stream = InProcessStream(pipeline(foreign_keys), settings, kafka=kafka, shards=shards)
    points = ["task.processed", "store.after_apply", "store.after_append", "driver.after_tables", "task.flushed"]
    stream.run_to_the_end(rng, 4, lambda _: rng.sample(points, 2))
    last = dict(sent(kafka, "out"))
    assert last == {o.encode(): f"{user}:{names.get(user)}".encode() for o, user in rows.items()}
    assert "caught up" in stream.openings
    stream.close()


def test_a_cycle_that_cannot_write_to_kafka_starts_over(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = MemoryKafka({"orders": 2, "users": 2, "out": 1})
    for number in range(8):
        write(kafka, "orders", (f"o{number}", f"u{number % 3}"))
        write(kafka, "users", (f"u{number % 3}", f"n{number}"))
    failures = iter([True])
    commit = MemorySink.commit

    def failing(sink: MemorySink) -> None:
        if next(failures, False):
            raise KafkaWriteError("the broker is away")
        commit(sink)

    monkeypatch.setattr(MemorySink, "commit", failing)
    stream = InProcessStream(pipeline(foreign_keys, record_cache=False), settings, kafka=kafka)
    stream.run(stream.end())

    undisturbed = MemoryKafka({"orders": 2, "users": 2, "out": 1}, {t: kafka.records[t] for t in ("orders", "users")})
    other = InProcessStream(
        pipeline(foreign_keys, record_cache=False), replace(settings, home=settings.home / "other"), kafka=undisturbed
    )
    other.run(other.end())
    assert kafka.records["out"] == undisturbed.records["out"]
    assert next(failures, None) is None
    stream.close()
    other.close()


class Alarm(Processor[str, int, str, int]):
    """Counts its records; says so every ten seconds of the wall clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        self._seen = context.state_store("seen")
        context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self._say)

    def process(self, record: Record[str, int]) -> None:
        self._seen.put("all", (self._seen.get("all") or 0) + record.value)

    def _say(self, now_ms: int) -> None:
        self.context.forward(Record("all", self._seen.get("all") or 0, now_ms))


def alarms(builder: StreamsBuilder) -> None:
    builder.add_state_store(Stores.key_value("seen", key=str, value=int))
    builder.stream("in", key=str, value=int).process(Alarm, "seen", key=str, value=int, name="alarm").to("out")


def test_punctuators_run_in_ticks_also_in_tasks_that_have_never_had_a_record(settings: Settings) -> None:
    kafka = MemoryKafka({"in": 2})
    kafka.write("in", RawRecord(b"a", number(3), 1_000), partition=0)
    stream = InProcessStream(pipeline(alarms), settings, kafka=kafka)
    stream.run({**stream.end(), TICK: {"0": 50_000}}, wall_ms=50_000)
    for wall_ms in (59_999, 60_000, 69_999, 95_000):
        stream.lose_worker()
        stream.tick(wall_ms)
    said = [(partition, record.timestamp_ms, record.value) for partition, _, record in kafka.read("out")]
    assert sorted(said) == [(0, time_ms, number(seen)) for time_ms in (60_000, 95_000) for seen in (0, 3)]
    stream.close()


def test_idle_tasks_close_their_last_windows(settings: Settings) -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(0))
        builder.stream("in", key=str, value=int).group_by_key().windowed_by(windows).count(store="counts").to_delta("c")

    kafka = MemoryKafka({"in": 2})
    kafka.write("in", RawRecord(b"a", number(3), 1_000), partition=0)
    stream = InProcessStream(pipeline(topology, idle_timeout=timedelta(seconds=5)), settings, kafka=kafka)
    stream.run(stream.end(), wall_ms=50_000)

    def final() -> list[bool]:
        return list(DeltaTable(stream.settings.tables / "c").to_pyarrow_table().column("is_final").to_pylist())

    assert final() == [False]
    stream.tick(54_999)
    stream.tick(62_000)
    assert final() == [True]
    stream.close()


def test_a_topology_chooses_the_partitions_of_what_it_writes(settings: Settings) -> None:
    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=int)
        stream.to("out", partitioner=lambda topic, key, value, partitions: value % partitions)

    kafka = MemoryKafka({"in": 2, "out": 3})
    for value in range(6):
        kafka.write("in", RawRecord(b"a", number(value), 1_000 + value))
    stream = InProcessStream(pipeline(topology, topics=(Topic("out", partitions=3),)), settings, kafka=kafka)
    stream.run(stream.end(), ["kafka.before_commit", "task.tables_written"])
    assert [(p, record.value) for p, _, record in kafka.read("out")] == [
        (value % 3, number(value)) for value in (0, 3, 1, 4, 2, 5)
    ]
    stream.close()


def closed_windows(builder: StreamsBuilder) -> None:
    windows = TimeWindows(size=timedelta(seconds=10), grace=timedelta(0))
    groups = builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows)
    table = groups.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")
    table.to_stream().select_key(lambda window, _: f"{window.key} {window.start_ms}", key=str).to("out")


@pytest.mark.parametrize("compatible_with_kafka", [False, True])
@pytest.mark.parametrize("emit_interval", [timedelta(0), timedelta(minutes=1)])
def test_a_jump_of_stream_time_loses_no_final_result_unless_kafka_streams_is_imitated(
    settings: Settings, compatible_with_kafka: bool, emit_interval: timedelta
) -> None:
    kafka = MemoryKafka({"in": 1, "out": 1})
    options = {"compatible_with_kafka": compatible_with_kafka, "emit_interval": emit_interval}
    stream = InProcessStream(pipeline(closed_windows, **options), settings, kafka=kafka)
    day_ms = 86_400_000
    for time_ms in (1_000, 2_000, 12_000, day_ms, day_ms + 1_000, 2 * day_ms, 3 * day_ms):
        kafka.write("in", RawRecord(b"a", b"x", time_ms))
        stream.run(stream.end(), ["task.processed", "store.after_append"])
        stream.lose_worker()
    for minutes in (2, 4):  # the pause between two checks is over
        kafka.write("in", RawRecord(b"a", b"x", (2 + minutes) * day_ms))
        stream.run(stream.end(), wall_ms=stream.clock(stream.batch_id) + minutes * 60_000)

    found = dict(sent(kafka, "out"))
    all_results = {
        f"a {start_ms}".encode(): number(count)
        for start_ms, count in [(0, 2), (10_000, 1), (day_ms, 2), (2 * day_ms, 1), (3 * day_ms, 1), (4 * day_ms, 1)]
    }
    if compatible_with_kafka:
        assert found.items() < all_results.items()
    else:
        assert found == all_results
    stream.close()
