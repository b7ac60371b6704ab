"""A stream goes on with more partitions: each key gets the results that it would have had with the old ones.

Spark's checkpoint is what it would have left; `tests/spark/test_rescale.py` reads a real one.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from deltaworks import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Pipeline,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from deltaworks.cli.app import app
from deltaworks.cli.listings import RescaleListed
from deltaworks.control import jobs, table_commands, topics
from deltaworks.control.topics import PipelineTopics
from deltaworks.erase import state
from deltaworks.errors import (
    ConfigurationError,
    ConflictError,
    DeltaworksError,
    IncompatibleCheckpointError,
    KafkaTopicError,
)
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.records import RecordBatch
from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.lakehouse.layout import PageName, is_page
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.replay import same_tasks
from deltaworks.replay.model import ReplayRequest
from deltaworks.replay.plan import make_plan
from deltaworks.rescale import keys, rescaling
from deltaworks.rescale.keys import Bounds
from deltaworks.rescale.rescaling import Rescaled
from deltaworks.settings import Settings
from deltaworks.spark import handover
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.persons import Person
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryBroker, MemoryKafka
from tests.hosts.stopping import Stopping
from tests.hosts.test_erasing import failing_at

NOBODY = "postgresql://127.0.0.1:1/nobody"
SECOND = timedelta(seconds=1)
KEYS = [f"key-{number}" for number in range(24)]
BEGIN_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Written:
    topic: str
    key: str
    value: str
    at_ms: int


@dataclass(frozen=True)
class MemoryTopics:
    kafka: MemoryKafka

    def begins(self, names: Sequence[str]) -> Bounds:
        return {
            (name, p): self.kafka.removed.get((name, p), 0) for name in names for p in range(self.kafka.count(name))
        }

    def ends(self, names: Sequence[str]) -> Bounds:
        return {(name, p): self.kafka.end(name, p) for name in names for p in range(self.kafka.count(name))}

    def read(self, part: Range) -> Iterator[RecordBatch]:
        for portion in self.kafka.reader().read([part]):
            yield from portion


class Rescaling(Stopping):
    """A pipeline whose topics get more partitions."""

    def __init__(self, home: Path, pipeline: Pipeline, partitions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = self.settings_in(home)
        self.sources = pipeline.plan().source_topics
        self.kafka = MemoryKafka(dict.fromkeys([*self.sources, *pipeline.plan().sink_topics], partitions))
        super().__init__(InProcessStream(pipeline, settings, kafka=self.kafka))
        self.held = dict.fromkeys(self.sources, partitions)
        monkeypatch.setattr(jobs, "load", lambda settings, name: pipeline)
        monkeypatch.setattr(topics, "check", lambda *_, **__: self._checked())
        monkeypatch.setattr(rescaling, "_Topics", lambda cluster, name: MemoryTopics(self.kafka))

    @staticmethod
    def settings_in(home: Path) -> Settings:
        return replace(Settings.from_environment({}), home=home, control_url=NOBODY)

    def _checked(self) -> PipelineTopics:
        now = {topic: self.kafka.count(topic) for topic in self.sources}
        grown = {topic: count for topic, count in now.items() if count != self.held[topic]}
        return PipelineTopics(
            missing=(), empty=(), different=(), named=dict(self.held), matched={}, whole={}, grown=grown
        )

    def batch(self, records: Sequence[Written]) -> None:
        for each in records:
            self.kafka.write(each.topic, RawRecord(each.key.encode(), each.value.encode(), each.at_ms))
        self.stream.run(self.stream.end())

    def grow(self, partitions: int) -> None:
        for topic in self.sources:
            self.kafka.partitions[topic] = partitions

    def rescale(self, **options: Any) -> Rescaled:
        """What is there of the old partitions must have been read."""
        self.stop()
        done = rescaling.rescale(self.stream.settings, self.stream.pipeline.name, by="ada", read=self.read, **options)
        self.go_on()
        self.held = {topic: self.kafka.count(topic) for topic in self.sources}
        return done

    def sent(self) -> dict[tuple[str, bytes], list[tuple[bytes | None, int]]]:
        """Topic and key -> what was written for the key, in order."""
        found: dict[tuple[str, bytes], list[tuple[bytes | None, int]]] = defaultdict(list)
        for topic in self.stream.plan.sink_topics:
            for _, _, record in self.kafka.read(topic):
                if b"flush" not in (record.key or b""):
                    found[topic, record.key or b""].append((record.value, record.timestamp_ms))
        return dict(found)

    def rows(self, table: str) -> list[dict[str, Any]]:
        self.stream.committer.refresh_snapshots(force=True)
        rows = DeltaTable(self.stream.settings.tables / table).to_pyarrow_table().to_pylist()
        ours = [{name: cell for name, cell in row.items() if "offset" not in name and "partition" not in name}
                for row in rows if not str(row["key"]).startswith("flush")]  # fmt: skip
        return sorted(ours, key=str)


def history(topics: Sequence[str], batches: int, *, begin: int = 0) -> list[list[Written]]:
    """Batches with records in the order of their times; each key has some in each."""
    found = []
    for number in range(begin, begin + batches):
        records, at_ms = [], BEGIN_MS + number * 10_000
        for place, key in enumerate(KEYS):
            for offset, topic in enumerate(topics):
                if (place + number + offset) % 3:
                    records.append(Written(topic, key, f"v{number}-{place % 5}", at_ms + 100 * place + 10 * offset))
        found.append(sorted(records, key=lambda each: each.at_ms))
    return found


def flush(topics: Sequence[str], partitions: int) -> list[Written]:
    """Much later records, one for each partition, which close all windows."""
    late: dict[int, str] = {}
    for number in range(1000):
        late.setdefault(partition_of(f"flush-{number}".encode(), partitions), f"flush-{number}")
    return [Written(topic, key, "flush", BEGIN_MS + 10_000_000) for topic in topics for _, key in sorted(late.items())]


def joined(builder: StreamsBuilder) -> None:
    """A table, joins with it, and a table behind an exchange."""
    users = builder.table("users", key=str, value=str, store="users")
    users.to_delta("users")
    visits = builder.stream("visits", key=str, value=str)
    visits.left_join(users, lambda page, user: f"{page} {user}", value=str).to("named")
    pages = visits.group_by(lambda _, page: page, key=str, name="by-page")
    pages.aggregate(str, lambda _, page, text: str(len(text) + 1), value=str, store="pages").to_delta("pages")


def windowed(builder: StreamsBuilder) -> None:
    """Windows of all kinds, of which some are open."""
    visits = builder.stream("visits", key=str, value=str)
    groups = visits.group_by_key()
    groups.windowed_by(TimeWindows(size=20 * SECOND, grace=timedelta(0))).count(store="tumbling").to_delta("tumbling")
    sliding = groups.windowed_by(SlidingWindows(difference=15 * SECOND, grace=5 * SECOND))
    sliding.count(store="sliding").to_stream().map_values(str, value=str).to("sliding")
    sessions = groups.windowed_by(SessionWindows(gap=12 * SECOND, grace=SECOND))
    sessions.count(store="sessions").to_delta("sessions")


def emitted(builder: StreamsBuilder) -> None:
    """Results that wait until their windows close."""
    visits = builder.stream("visits", key=str, value=str)
    windows = TimeWindows(size=30 * SECOND, grace=timedelta(0))
    counts = visits.group_by_key().windowed_by(windows).count(store="held-counts")
    final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), name="held")
    final.to_stream().map_values(str, value=str).to("held-back")
    closing = visits.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    closing.count(store="closing-counts").to_stream().map_values(str, value=str).to("at-the-end")


def streams(builder: StreamsBuilder) -> None:
    """Joins of streams, inner and left, whose records wait for partners."""
    left, right = (builder.stream(name, key=str, value=str) for name in ("left", "right"))
    near = JoinWindows(before=12 * SECOND, after=12 * SECOND, grace=SECOND)
    left.join(right, lambda a, b: f"{a}/{b}", near, value=str, store="inner").to("pairs")
    left.left_join(right, lambda a, b: f"{a}/{b}", near, value=str, store="left").to("all")


COUNTS = Stores.key_value("own-counts", key=str, value=int, record_key=lambda key: key.partition("|")[0])
LAST = Stores.lru("last-seen", key=str, value=str, max_entries=1000, record_key=lambda key: key)


class Own(Processor[str, str, str, str]):
    """Counts by key and value, in a store of its own."""

    stores = (COUNTS, LAST)

    def process(self, record: Record[str, str]) -> None:
        counts, last = self.context.state_store(COUNTS), self.context.state_store(LAST)
        place = f"{record.key}|{record.value[-1]}"
        counts.put(place, (counts.get(place) or 0) + 1)
        before = last.get(record.key)
        last.put(record.key, record.value)
        self.context.forward(record.with_value(f"{before} {counts.get(place)}"))


def processed(builder: StreamsBuilder) -> None:
    builder.stream("visits", key=str, value=str).process(Own, value=str).to("processed")


def foreign(builder: StreamsBuilder) -> None:
    """Rows that refer to rows of another table."""
    orders = builder.table("orders", key=str, value=str, store="orders")
    pages = builder.table("pages", key=str, value=str, store="rows")
    orders.join(
        pages,
        foreign_key=lambda _, value: f"key-{value[-1]}",
        joiner=lambda a, b: f"{a}+{b}",
        value=str,
        name="ref",
    ).to_stream().to("referring")


TOPOLOGIES: dict[str, Callable[[StreamsBuilder], None]] = {
    "joined": joined, "windowed": windowed, "emitted": emitted, "streams": streams, "processed": processed,
    "foreign": foreign,
}  # fmt: skip


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 4), (2, 6)])
def test_each_key_gets_the_results_of_a_stream_that_kept_its_partitions(
    name: str, before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(name=name, topology=TOPOLOGIES[name])
    kept = Rescaling(tmp_path / "kept", pipeline, before, monkeypatch)
    for batch in (*history(kept.sources, 8), flush(kept.sources, before)):
        kept.batch(batch)

    spread = Rescaling(tmp_path / "spread", pipeline, before, monkeypatch)
    for batch in history(spread.sources, 4):
        spread.batch(batch)
    spread.grow(after)
    first, *others = history(spread.sources, 4, begin=4)
    for each in first:  # they are in the new partitions, too, which nobody reads yet
        spread.kafka.write(each.topic, RawRecord(each.key.encode(), each.value.encode(), each.at_ms))
    done = spread.rescale()
    assert done.checkpoint == "rescaled-1" and done.first_batch == 4
    for batch in ([], *others, flush(spread.sources, after)):
        spread.batch(batch)

    assert spread.sent() == kept.sent()
    assert spread.sent() or spread.stream.plan.tables
    for sink in pipeline.plan().tables:
        assert spread.rows(sink.table) == kept.rows(sink.table) and kept.rows(sink.table)
    kept.stream.close()
    spread.stream.close()


def a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "joined", batches: int = 3) -> Rescaling:
    """With two partitions, and a few batches."""
    made = Rescaling(tmp_path, Pipeline(name=name, topology=TOPOLOGIES[name]), 2, monkeypatch)
    for batch in history(made.sources, batches):
        made.batch(batch)
    return made


def durable(stream: Rescaling) -> dict[str, bytes]:
    """The files of pipeline and tables, without those that whoever asks takes."""
    home, paths = stream.stream.settings.home, stream.stream.paths
    own = (paths.lease, paths.fence, paths.fence.with_name(f"{paths.fence.name}.lock"), paths.current.synced)
    files = (path for folder in ("pipelines", "tables") for path in (home / folder).rglob("*"))
    return {str(path): path.read_bytes() for path in files if path.is_file() and path not in own}


def refused(stream: Rescaling, error: type[DeltaworksError], said: str, **options: Any) -> None:
    """Nothing changes, and the stream can go on."""
    stream.stop()
    before = durable(stream)
    with pytest.raises(error, match=said):
        rescaling.rescale(stream.stream.settings, stream.stream.pipeline.name, by="ada", read=stream.read, **options)
    assert durable(stream) == before
    stream.stream.close()


def test_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    monkeypatch.setattr(Pipeline, "shards", lambda self, cores: stream.stream.checkpoint.shards)
    stream.stop()
    before = durable(stream)
    done = rescaling.rescale(stream.stream.settings, "joined", by="ada", read=stream.read)
    assert done.checkpoint is None and not done.change.is_needed and durable(stream) == before
    stream.stream.close()


def test_more_cores_are_used_with_the_same_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    monkeypatch.setattr(Pipeline, "shards", lambda self, cores: 5)
    done = stream.rescale()
    assert done.change.shards == (2, 5) and done.change.tasks == ((2, 2), (2, 2))
    (more,) = history(stream.sources, 1, begin=3)
    stream.batch(more)
    kept = a_stream(tmp_path / "kept", monkeypatch, batches=4)
    assert stream.sent() == kept.sent() and stream.rows("pages") == kept.rows("pages")
    assert stream.stream.checkpoint.shards == 5
    stream.stream.close()
    kept.stream.close()


def spread_over(partitions: int) -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        visits = builder.stream("visits", key=str, value=str)
        spread = visits.repartition(name="spread", partitions=partitions)
        spread.group_by_key().count(store="counts").to_delta("counts")
        windows = TimeWindows(size=30 * SECOND, grace=timedelta(0))
        spread.group_by_key().windowed_by(windows).count(store="windows").to_delta("windows")

    return Pipeline(name="spreading", topology=topology)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 6), (4, 2)])
def test_an_exchange_gets_another_width_from_the_code(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Rescaling(tmp_path / "kept", spread_over(before), 2, monkeypatch)
    for batch in (*history(kept.sources, 8), flush(kept.sources, 24)):
        kept.batch(batch)
    stream = Rescaling(tmp_path / "spread", spread_over(before), 2, monkeypatch)
    for batch in history(stream.sources, 5):
        stream.batch(batch)
    stream.stop()
    settings, name = stream.stream.settings, "spreading"
    monkeypatch.setattr(jobs, "load", lambda settings, name: spread_over(after))
    done = rescaling.rescale(settings, name, by="ada", read=stream.read)
    assert done.change.tasks == ((2, 2), (before, after)) and done.change.partitions == {}
    stream.stream.pipeline = spread_over(after)
    stream.go_on()
    for batch in (*history(stream.sources, 3, begin=5), flush(stream.sources, 24)):
        stream.batch(batch)
    for table in ("counts", "windows"):
        assert stream.rows(table) == kept.rows(table)
    stream.stream.close()
    kept.stream.close()


def test_records_of_old_partitions_are_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    waiting, later = history(stream.sources, 2, begin=3)
    for each in waiting:
        stream.kafka.write(each.topic, RawRecord(each.key.encode(), each.value.encode(), each.at_ms))
    stream.grow(4)
    stream.stop()
    before = durable(stream)
    with pytest.raises(ConflictError, match=r"records of '(users|visits)' that are not read yet were written before"):
        rescaling.rescale(stream.stream.settings, "joined", by="ada", read=stream.read)
    assert durable(stream) == before

    stream.stream.run(stream.stream.end())  # the stream goes on with the partitions that it knows
    stream.rescale()
    stream.batch(later)
    kept = a_stream(tmp_path / "kept", monkeypatch, batches=5)
    assert stream.sent() == kept.sent() and stream.rows("pages") == kept.rows("pages")
    stream.stream.close()
    kept.stream.close()


def test_a_stream_that_is_far_behind_catches_up_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_UNREAD", 3)
    stream = a_stream(tmp_path, monkeypatch)
    for number in range(8):
        stream.kafka.write("visits", RawRecord(b"a", b"1", BEGIN_MS + 100_000 + number))
    stream.grow(4)
    for key in KEYS:
        stream.kafka.write("visits", RawRecord(key.encode(), b"1", BEGIN_MS + 100_000))
    refused(stream, ConflictError, "has not read 23 records of 'visits' yet")


def crc32_partition(key: str, partitions: int) -> int:
    return zlib.crc32(key.encode()) % partitions


@pytest.mark.parametrize("before", [1, 2])
def test_producers_with_another_partitioner_are_recognised(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(stream: Rescaling, records: Sequence[Written]) -> None:
        for each in records:
            partition = crc32_partition(each.key, stream.kafka.count(each.topic))
            record = RawRecord(each.key.encode(), each.value.encode(), each.at_ms)
            stream.kafka.write(each.topic, record, partition)

    stream = Rescaling(tmp_path / "a", Pipeline(name="joined", topology=joined), before, monkeypatch)
    kept = Rescaling(tmp_path / "b", Pipeline(name="joined", topology=joined), before, monkeypatch)
    first, second, third = history(stream.sources, 3)
    for each in (stream, kept):
        write(each, first)
        each.stream.run(each.stream.end())
    stream.grow(2 * before)
    write(stream, second)
    monkeypatch.setattr(topics, "check", lambda *_, **__: stream._checked())
    monkeypatch.setattr(rescaling, "_Topics", lambda cluster, name: MemoryTopics(stream.kafka))
    done = stream.rescale()
    assert done.change.partitioners == {"users": "crc32", "visits": "crc32"}
    stream.batch([])
    write(kept, second)
    kept.stream.run(kept.stream.end())
    for each in (stream, kept):
        write(each, third)
        each.stream.run(each.stream.end())
    assert stream.sent() == kept.sent() and stream.rows("pages") == kept.rows("pages")
    stream.stream.close()
    kept.stream.close()


def test_keys_that_no_partitioner_explains_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    stream.grow(4)
    for number, key in enumerate(KEYS):
        stream.kafka.write("visits", RawRecord(key.encode(), b"1", BEGIN_MS + 100_000), number % 4)
    refused(stream, KafkaTopicError, "neither murmur2 nor crc32 puts there")


def test_a_key_in_the_wrong_task_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    wrong = next(key for key in KEYS if partition_of(key.encode(), 2) == 0)
    stream.kafka.write("users", RawRecord(wrong.encode(), b"1", BEGIN_MS + 100_000), 1)
    stream.batch([])
    stream.grow(4)
    refused(stream, IncompatibleCheckpointError, "store 'users' has a key in task 1 that murmur2 does not place there")


def test_without_records_in_new_partitions_nothing_tells_the_partitioner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Rescaling(tmp_path, Pipeline(name="joined", topology=joined), 1, monkeypatch)
    stream.batch(history(stream.sources, 1)[0])
    stream.grow(2)
    stream.stop()
    with pytest.raises(KafkaTopicError, match="nothing tells how producers place keys"):
        rescaling.look(stream.stream.settings, "joined")
    assert rescaling.look(stream.stream.settings, "joined", partitioner="crc32").partitioners["visits"] == "crc32"
    stream.rescale(partitioner="murmur2")
    stream.stream.close()


POINTS = ("rescale.made", "rescale.switched", "moved_pages.table:tumbling", "moved_pages.committed")


@pytest.mark.parametrize("point", POINTS)
def test_who_is_killed_is_followed_by_another_one(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch, "windowed", batches=5)
    stream.grow(4)
    stream.stop()
    settings = stream.stream.settings
    with failing_at(point, 1):
        rescaling.rescale(settings, "windowed", by="ada", read=stream.read)
    assert stream.stream.paths.switched == (() if point == "rescale.made" else ("rescaled-1",))
    if point == "rescale.made":
        rescaling.rescale(settings, "windowed", by="ada", read=stream.read)
    else:
        stream.held = dict.fromkeys(stream.sources, 4)
        table_commands.opened(  # as the next driver does
            settings, stream.stream.pipeline, stream.stream.plan, stream.stream.query_id, 1
        ).close()
    stream.go_on()
    kept = Rescaling(tmp_path / "kept", stream.stream.pipeline, 2, monkeypatch)
    for batch in (*history(kept.sources, 7), flush(kept.sources, 2)):
        kept.batch(batch)
    for batch in (*history(stream.sources, 2, begin=5), flush(stream.sources, 4)):
        stream.batch(batch)
    assert stream.sent() == kept.sent() and stream.rows("tumbling") == kept.rows("tumbling")
    stream.stream.close()
    kept.stream.close()


def test_what_was_interrupted_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch, "windowed", batches=5)
    stream.grow(4)
    stream.stop()
    settings, pipeline = stream.stream.settings, stream.stream.pipeline
    with failing_at("rescale.switched", 1):
        rescaling.rescale(settings, "windowed", by="ada", read=stream.read)
    stream.held = dict.fromkeys(stream.sources, 4)
    stream.go_on()
    stream.grow(8)
    for what in (
        lambda: rescaling.rescale(settings, "windowed", by="ada", read=stream.read),
        lambda: state.erase(settings, pipeline, stream.stream.paths, Person.of("key-1"), "one", read=stream.read),
    ):
        with pytest.raises(ConflictError, match="A rescale of 'windowed' was interrupted"):
            what()
    stream.stream.close()


def test_open_windows_are_a_version_with_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch, "windowed", batches=4)
    path = stream.stream.settings.tables / "tumbling"
    before, rows = DeltaTable(path).version(), stream.rows("tumbling")
    stream.grow(4)
    stream.rescale()
    table, log = DeltaTable(path), DeltaLog(path)
    log.load()
    assert [each["operation"] for each in table.history() if each["version"] > before] == ["RESCALE"]
    assert stream.rows("tumbling") == rows
    assert {PageName.of(page).task for page in log.files if is_page(page)} == {0, 1, 2, 3}
    stream.stream.close()


def test_new_partitions_are_read_from_their_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    read = stream.stream.offsets["visits"]
    stream.grow(4)
    stream.rescale()
    start = stream.stream.checkpoint.start
    assert start is not None and start["visits"] == {**read, "2": 0, "3": 0}
    assert stream.stream.checkpoint.partitions == {"users": 4, "visits": 4}
    stream.stream.close()


def test_there_is_no_way_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    stream.grow(4)
    stream.rescale()
    for name in (None, "rescaled-1"):
        with pytest.raises(ConflictError, match="goes on with other tasks since then"):
            handover.undo(stream.stream.paths, name)
    stream.grow(8)
    assert stream.rescale().checkpoint == "rescaled-2"
    stream.stream.close()


def test_a_replay_has_no_batches_from_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch, "windowed")
    stream.grow(4)
    stream.rescale()
    for batch in history(stream.sources, 2, begin=3):
        stream.batch(batch)
    broker: Any = MemoryBroker(stream.kafka)
    plan = make_plan(
        stream.stream.settings, stream.stream.pipeline, ReplayRequest(pipeline="windowed", requested_by="ada"), broker
    )
    assert plan.rescaled == (3,)
    with pytest.raises(ConfigurationError, match=r"batches 0 to 4.*but since batch 3 the stream has had other tasks"):
        same_tasks.require(plan)
    later = LaterBegin(batch=3, topics=(), since_ms=0, complete_from_ms=0)
    same_tasks.require(msgspec.structs.replace(plan, begin=later))
    with pytest.raises(ConfigurationError):
        same_tasks.require(msgspec.structs.replace(plan, begin=msgspec.structs.replace(later, topics=("visits",))))
    stream.stream.close()


def test_the_command_says_what_it_changes_and_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(tmp_path, monkeypatch)
    stream.grow(4)
    for key in KEYS:
        stream.kafka.write("visits", RawRecord(key.encode(), b"1", BEGIN_MS + 100_000), partition_of(key.encode(), 4))
    stream.stop()
    settings = stream.stream.settings
    monkeypatch.setattr(Settings, "from_environment", classmethod(lambda cls: settings))
    before = durable(stream)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["rescale", "joined", *arguments])

    shown = call("--dry-run").output
    assert "partitions of visits" in shown and "murmur2" in shown and "tasks of stage 0" in shown
    document = msgspec.json.decode(call("--dry-run", "--json").stdout, type=RescaleListed)
    assert document.partitions == {"users": (2, 4), "visits": (2, 4)} and document.checkpoint is None
    assert call().exit_code != 0, "nobody is there to agree"
    assert isinstance((wrong := call("--partitioner", "md5")).exception, ConfigurationError), wrong.output
    assert durable(stream) == before
    stream.stream.run({topic: {p: at for p, at in parts.items() if int(p) < 2}
                       for topic, parts in stream.stream.end().items()})  # fmt: skip
    stream.stop()
    monkeypatch.setattr(rescaling, "rescale", partial(rescaling.rescale, read=stream.read))
    done = call("--yes")
    assert "joined goes on with batch 4 and 8 tasks" in done.output, done.output
    stream.go_on()
    stream.held = dict.fromkeys(stream.sources, 4)
    monkeypatch.setattr(Pipeline, "shards", lambda self, cores: stream.stream.checkpoint.shards)
    assert "nothing to do" in call().output
    stream.stream.close()
