"""Stores are read as of the last committed batch, by key, by range and in pages, whatever the task is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from deltaworks import JoinWindows, Materialized, Pipeline, SessionWindows, StreamsBuilder, TimeWindows
from deltaworks.control.checkpoint import write_plan
from deltaworks.control.intents import Intent
from deltaworks.control.served import Announcer
from deltaworks.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    NoSuchStoreError,
    StoreQueryError,
    StoreUnavailableError,
)
from deltaworks.kernel.partitioning import partition_of
from deltaworks.queries.kinds import Stream
from deltaworks.queries.questions import (
    KeyQuery,
    Question,
    RangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from deltaworks.queries.sources import Announced
from deltaworks.queries.stream import OpenStream
from deltaworks.runtime.state import published, store_process
from deltaworks.runtime.state.local_files import FORMAT, Note
from deltaworks.runtime.state.recovery import local_path
from deltaworks.runtime.state.store_process import StoreServing
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

AT_ONCE = timedelta(0)


def counting(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).group_by_key().count(store="counts").to_stream().to("out")


pipeline = Pipeline(name="counting", topology=counting)
HERE, TOLD, EXECUTORS = "in a home of this machine", "told by the driver", "beside executors"


Test = TypeVar("Test", bound=Callable[..., None])


def only(*places: str) -> Callable[[Test], Test]:
    """A test that says nothing of other places."""

    def marked(test: Test) -> Test:
        setattr(test, "places", places)  # noqa: B010 (functions have no such attribute for a type checker)
        return test

    return marked


@pytest.fixture(params=[HERE, TOLD, EXECUTORS], autouse=True)
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where stores are, and who says which batch is committed."""
    found = str(request.param)
    if found not in getattr(request.function, "places", (found,)):
        pytest.skip(f"says nothing of stores {found}")
    monkeypatch.setattr(Counting, "where", found)
    if found != HERE:
        monkeypatch.setattr("deltaworks.queries.stream.source_of", Announced)
    return found


class Counting(InProcessStream):
    """A count per key, in two tasks; the test says when Spark commits."""

    where = HERE

    def __init__(self, home: Path, pipeline: Pipeline = pipeline, partitions: int = 2) -> None:
        self.topics = MemoryKafka({"in": partitions, "other": partitions})
        settings = replace(Settings.from_environment({}), home=home)
        serving = StoreServing.of("127.0.0.1") if self.where == EXECUTORS else None
        super().__init__(pipeline, settings, kafka=self.topics, serving=serving, is_state_here=self.where == HERE)
        self.notes = self.paths.current.spark / "commits"
        self.notes.mkdir(parents=True)
        token = None if serving is None else serving.token
        paths = self.paths
        self.announcer = Announcer(paths.served, self.checkpoint, paths.current.local, self.routes, token=token)
        paths.heartbeat.touch()

    def write(self, *keys: str) -> None:
        for key in keys:
            self.topics.write("in", RawRecord(key.encode(), b"x", 1000))

    def batch(self, *keys: str, is_committed: bool = True) -> None:
        self.write(*keys)
        self.run(self.end())
        if is_committed:
            self.commit()

    def commit(self) -> None:
        last = self.batch_id - 1
        (self.notes / str(last)).touch()
        intent = self.intents.get(last)
        assert intent is not None
        self.announcer.ended(intent, self.places)
        self.announcer.committed(last)

    def close(self) -> None:
        """Ends the server, too."""
        super().close()
        server = store_process._children.pop(self.paths.current.local, None)
        if server is not None:
            server.kill()
            server.wait()

    @contextmanager
    def asked(self, patience: timedelta = AT_ONCE) -> Iterator[Stream]:
        """LMDB admits one that opens a store in a process, so the worker ends before."""
        self.lose_worker()
        stream = Stream(self.pipeline, self.settings, patience=patience)
        with closing(stream):
            yield stream

    def count(self, key: str) -> tuple[int | None, int]:
        """The count of a key, and the batch it is of."""
        with self.asked() as stream:
            found = stream.store("counts").get(key)
            return found.value, found.as_of.batch


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path)
    yield made
    made.close()


def test_a_batch_is_seen_when_it_is_committed_and_not_before(stream: Counting) -> None:
    stream.batch("a", "b")
    assert stream.count("a") == (1, 0)
    stream.batch("a", is_committed=False)
    assert (stream.count("a"), stream.count("b")) == ((1, 0), (1, 0))
    stream.commit()
    assert (stream.count("a"), stream.count("b")) == ((2, 1), (1, 1))


def test_before_the_first_batch_is_committed_nothing_can_be_said(stream: Counting) -> None:
    stream.batch("a", is_committed=False)
    with pytest.raises(StoreUnavailableError, match="no batch of the stream's checkpoint is committed yet"):
        stream.count("a")


def test_an_answer_says_as_of_when_it_is(stream: Counting) -> None:
    stream.batch("a", "b", "c")
    stream.batch("a")
    with stream.asked() as asked:
        found = asked.store("counts").get("a")

    assert (found.value, found.timestamp_ms) == (2, 1000)
    assert found.as_of.time_ms == stream.clock(1)
    assert sum(found.as_of.offsets["in"].values()) == 4


def test_a_task_that_never_had_a_record_has_an_empty_store(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        counts = asked.store("counts")
        assert [(row.key, row.value) for row in counts.all().rows] == [("a", 1)]
        assert counts.get("nobody").value is None


def test_a_key_without_a_value_has_none(stream: Counting) -> None:
    stream.batch("a", "b", "c", "d")
    assert stream.count("nobody") == (None, 0)


def test_an_attempt_that_was_replaced_by_another_batch_of_the_same_id_is_never_seen(stream: Counting) -> None:
    """As when the first attempt was too large, or its code was replaced: the batch gets other records, or none."""
    stream.batch("a", "b")
    stream.write("a")
    failed = stream._intent(stream.end(), 0)
    stream.intents.put(failed)
    stream._attempt(failed)  # it has published, and goes no further
    other = stream._intent(stream.offsets, 1)
    stream.intents.replace(failed, other)
    stream.restart()
    stream.run(stream.offsets)
    stream.commit()

    assert isinstance(other, Intent) and stream.batch_id == 2
    assert stream.count("a") == (1, 1)


@only(HERE)
def test_a_checkpoint_that_was_rewound_by_several_batches_says_nothing_until_they_are_there_again(
    stream: Counting,
) -> None:
    for _ in range(3):
        stream.batch("a", "b")
    for batch in (1, 2):
        (stream.notes / str(batch)).unlink()
    with pytest.raises(StoreUnavailableError, match="has gone on to batch 2"):
        stream.count("a")


@pytest.mark.parametrize("lost", ["the whole store", "what was published"])
def test_a_store_that_is_lost_is_not_taken_for_an_empty_one(stream: Counting, lost: str) -> None:
    stream.batch("a", "b", "c", "d")
    stream.lose_worker()
    for task in (0, 1):
        folder = local_path(stream.paths.current.local, 0, task)
        if lost == "what was published":
            (folder / published.NAME).unlink()
        else:
            stream.lose_disk((0, task))
    with pytest.raises(StoreUnavailableError):
        stream.count("a")
    stream.batch("a", "b", "c", "d")
    assert stream.count("a") == (2, 1)


def test_after_a_restart_of_the_machine_an_idle_task_shows_its_store_again(stream: Counting) -> None:
    stream.batch("a", "a")
    stream.lose_worker()
    for folder in stream.paths.current.local.glob("0-*"):
        (folder / "made.json").write_bytes(msgspec.json.encode(Note(FORMAT, "another boot")))
    with pytest.raises(StoreUnavailableError):
        stream.count("a")
    stream.restart()
    stream.batch("a")
    with stream.asked() as asked:
        assert [(row.key, row.value) for row in asked.store("counts").all().rows] == [("a", 3)]


def test_a_damaged_file_is_refused(stream: Counting) -> None:
    stream.batch("a", "b", "c", "d")
    for task in (0, 1):
        path = local_path(stream.paths.current.local, 0, task) / published.NAME
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with pytest.raises(StoreUnavailableError, match="damaged"):
        stream.count("a")


def test_one_waits_for_a_batch_and_says_if_it_does_not_come(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        assert asked.store("counts").get("a", min_batch=0).value == 1
        with pytest.raises(StoreUnavailableError, match="batch 1 is not committed yet; the last one is 0"):
            asked.store("counts").get("a", min_batch=1)


def test_pages_follow_each_other(stream: Counting) -> None:
    keys = [f"k{number:03}" for number in range(50)]
    stream.batch(*keys)
    stream.batch(*keys[::2], "zz")
    expected = [(key, 2 - number % 2) for number, key in enumerate(keys)] + [("zz", 1)]
    with stream.asked() as asked:
        counts = asked.store("counts")
        for reverse in (False, True):
            found: list[tuple[Any, Any]] = []
            after = None
            while True:
                page = counts.all(limit=7, after=after, reverse=reverse)
                found += [(row.key, row.value) for row in page.rows]
                if (after := page.next) is None:
                    break
            assert found == (expected[::-1] if reverse else expected)
        assert [row.key for row in counts.range("k003", "k005").rows] == ["k003", "k004", "k005"]
        assert [row.key for row in counts.prefix("k04", reverse=True).rows] == keys[49:39:-1]
        assert counts.approximate_count() == 51


def test_wrong_questions_say_what_would_be_right(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        with pytest.raises(NoSuchStoreError, match="its stores: counts"):
            asked.store("count")
        counts = asked.store("counts")
        with pytest.raises(StoreQueryError, match="keys of the store 'counts' are str, not int"):
            counts.get(7)
        with pytest.raises(StoreQueryError, match="keys of the store 'counts' are str, not None"):
            counts.get(None)
        with pytest.raises(StoreQueryError, match="from 1 to 100,000 rows"):
            counts.all(limit=1_000_000)
        with pytest.raises(StoreQueryError, match="'b' comes after 'a'"):
            counts.range("b", "a")
        with pytest.raises(StoreQueryError, match="not where a page ends"):
            counts.all(after="?")


def test_answers_can_be_sent(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        page = asked.store("counts").all()
        assert msgspec.json.decode(msgspec.json.encode(page))["rows"] == [
            {"key": "a", "value": 1, "timestamp_ms": 1000}
        ]
        metadata = asked.all_metadata_for_store("counts")
    assert (metadata.kind, metadata.tasks, metadata.key) == ("key-value", 2, "str")


def several(builder: StreamsBuilder) -> None:
    """A store of each kind, and one that nothing else reads."""
    ten, grace = timedelta(milliseconds=10), timedelta(hours=1)
    events = builder.stream("in", key=str, value=str).group_by_key()
    events.windowed_by(TimeWindows(size=ten, grace=grace)).count(store="windows")
    events.windowed_by(SessionWindows(gap=ten, grace=grace)).count(store="sessions")
    versions = Materialized("versions", history=timedelta(hours=1))
    builder.table("prices", key=str, value=int, store=versions).to_stream().to("out")
    builder.global_table("countries", key=str, value=str, store="countries")


class Several(Counting):
    def __init__(self, home: Path) -> None:
        super().__init__(home, Pipeline(name="several", topology=several))

    def put(self, topic: str, key: str, value: bytes | None, timestamp_ms: int) -> None:
        self.topics.write(topic, RawRecord(key.encode(), value, timestamp_ms))


@pytest.fixture
def all_kinds(tmp_path: Path) -> Iterator[Several]:
    made = Several(tmp_path)
    yield made
    made.close()


def test_windows_of_a_stream(all_kinds: Several) -> None:
    for timestamp_ms in (1, 2, 11, 25):
        all_kinds.put("in", "a", b"x", timestamp_ms)
    all_kinds.put("in", "b", b"x", 12)
    all_kinds.batch()
    all_kinds.put("in", "a", b"x", 25)
    all_kinds.batch()
    with all_kinds.asked() as asked:
        windows = asked.store("windows")
        found = [(row.start_ms, row.end_ms, row.value, row.timestamp_ms) for row in windows.fetch("a").rows]
        assert found == [(0, 10, 2, 2), (10, 20, 1, 11), (20, 30, 2, 25)]
        assert windows.get("a", 20).value == 2
        assert windows.get("a", 30).value is None
        assert [(row.key, row.start_ms) for row in windows.fetch_all(10, 19).rows] == [("a", 10), ("b", 10)]
        stats = windows.stats()
    assert (stats.entries, stats.oldest_ms, stats.newest_ms) == (4, 0, 20)
    assert stats.size_bytes > 0


def test_sessions_of_a_stream(all_kinds: Several) -> None:
    for timestamp_ms in (1, 5, 40):
        all_kinds.put("in", "a", b"x", timestamp_ms)
    all_kinds.batch()
    with all_kinds.asked() as asked:
        sessions = asked.store("sessions")
        assert [(row.start_ms, row.end_ms, row.value) for row in sessions.fetch("a").rows] == [(1, 5, 2), (40, 40, 1)]
        assert sessions.get("a", 1, 5).value == 2
        assert sessions.get("a", 1, 6).value is None


def test_the_changes_of_windows(all_kinds: Several) -> None:
    def changed() -> list[tuple[str, int, int, int | None]]:
        with all_kinds.asked() as asked:
            rows = asked.store("windows").changes().rows
        return [(row.key, row.start_ms, row.end_ms, row.value) for row in rows]

    for key, timestamp_ms in (("a", 1), ("a", 2), ("a", 11), ("b", 12)):
        all_kinds.put("in", key, b"x", timestamp_ms)
    all_kinds.batch()
    assert changed() == [("a", 0, 10, 2), ("a", 10, 20, 1), ("b", 10, 20, 1)]
    all_kinds.put("in", "a", b"x", 12)
    all_kinds.batch()
    assert changed() == [("a", 10, 20, 2)]
    all_kinds.batch()
    assert changed() == []


def test_the_changes_of_sessions(all_kinds: Several) -> None:
    """A session that grows is another one, so the old one is gone."""

    def changed() -> list[tuple[str, int, int, int | None]]:
        with all_kinds.asked() as asked:
            rows = asked.store("sessions").changes().rows
        return [(row.key, row.start_ms, row.end_ms, row.value) for row in rows]

    all_kinds.put("in", "a", b"x", 1)
    all_kinds.put("in", "b", b"x", 2)
    all_kinds.batch()
    assert changed() == [("a", 1, 1, 1), ("b", 2, 2, 1)]
    all_kinds.put("in", "a", b"x", 5)
    all_kinds.batch()
    assert changed() == [("a", 1, 1, None), ("a", 1, 5, 2)]


def test_windows_that_a_batch_has_changed_and_dropped_are_no_change(tmp_path: Path) -> None:
    def brief(builder: StreamsBuilder) -> None:
        counted = builder.stream("in", key=str, value=str).group_by_key()
        windows = TimeWindows(size=timedelta(milliseconds=10), grace=timedelta(0))
        counted.windowed_by(windows).count(store=Materialized("windows", retention=timedelta(milliseconds=10)))

    hour_ms = 3_600_000
    with closing(Counting(tmp_path, Pipeline(name="brief", topology=brief), partitions=1)) as stream:
        for timestamp_ms in (1, 5, 24 * hour_ms):
            stream.topics.write("in", RawRecord(b"a", b"x", timestamp_ms))
        stream.batch()
        with stream.asked() as asked:
            windows = asked.store("windows")
            rows, left = windows.changes().rows, windows.fetch("a").rows
    assert [row.start_ms for row in rows] == [row.start_ms for row in left] == [24 * hour_ms]


def test_versions_of_a_table(all_kinds: Several) -> None:
    for value, timestamp_ms in ((1, 100), (2, 200), (3, 300)):
        all_kinds.put("prices", "a", value.to_bytes(8, "big"), timestamp_ms)
    all_kinds.batch()
    with all_kinds.asked() as asked:
        versions = asked.store("versions")
        found = [versions.get("a", as_of_ms) for as_of_ms in (None, 250, 200, 99)]
    assert [(each.value, each.valid_from_ms) for each in found] == [(3, 300), (2, 200), (2, 200), (None, None)]


def test_a_global_table_is_of_the_offsets_that_it_has_read(all_kinds: Several) -> None:
    all_kinds.put("countries", "it", b"Italy", 1)
    all_kinds.batch("a")
    with all_kinds.asked() as asked:
        countries = asked.store("countries")
        found = countries.get("it")
        assert (found.value, found.task, found.as_of.batch) == ("Italy", None, 0)
        assert found.as_of.offsets == {"countries": {"0": 1}}
        assert [row.value for row in countries.all().rows] == ["Italy"]
        assert countries.metadata().tasks == 0


def test_questions_as_values_are_answered_as_by_the_methods(all_kinds: Several) -> None:
    all_kinds.put("in", "a", b"x", 5)
    all_kinds.put("prices", "a", (7).to_bytes(8, "big"), 100)
    all_kinds.put("countries", "it", b"Italy", 1)
    all_kinds.batch()
    with all_kinds.asked() as asked:
        store = asked.store
        assert asked.query("countries", KeyQuery(key="it")) == store("countries").get("it")
        assert asked.query("countries", RangeQuery(limit=5)) == store("countries").range(limit=5)
        for name in ("windows", "sessions"):
            assert asked.query(name, WindowKeyQuery(key="a", to_ms=9)).rows == store(name).fetch("a").rows != ()
            assert asked.query(name, WindowRangeQuery(from_key="b")).rows == ()
        assert asked.query("versions", VersionedKeyQuery(key="a", as_of_ms=100)).value == 7
        with pytest.raises(StoreUnavailableError):
            asked.query("countries", KeyQuery(key="it"), min_batch=9)
        with pytest.raises(StoreQueryError, match="'windows' is a window store, and KeyQuery is not for it"):
            asked.query("windows", KeyQuery(key="a"))
        sent = msgspec.json.encode(KeyQuery(key="it"))
        assert asked.query("countries", msgspec.json.decode(sent, type=Question)).value == "Italy"


def test_stores_of_another_kind_are_not_offered(tmp_path: Path) -> None:
    def joined(builder: StreamsBuilder) -> None:
        left, right = (builder.stream(topic, key=str, value=str) for topic in ("in", "other"))
        windows = JoinWindows(difference=timedelta(seconds=1), grace=timedelta(0))
        left.join(right, lambda a, b: a + b, windows, value=str, store="joined").to("out")

    stream = Counting(tmp_path, Pipeline(name="joined", topology=joined))
    stream.batch("a")
    with stream.asked() as asked:
        assert asked.all_metadata() == []
        for name in asked.owned:
            with pytest.raises(NoSuchStoreError, match="internal to its operator"):
                asked.store(name)
    stream.close()


def test_code_whose_stores_are_others_is_refused(stream: Counting) -> None:
    def other(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str).group_by_key().reduce(lambda a, b: a + b, store="counts")

    stream.batch("a")
    with pytest.raises(IncompatibleCheckpointError, match="written by another plan"):
        OpenStream(Pipeline(name="counting", topology=other), stream.settings)


@only(HERE)
def test_a_stream_that_has_never_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'counting' has never run in this home"):
        OpenStream(pipeline, replace(Settings.from_environment({}), home=tmp_path))


def test_a_key_says_which_task_has_it(tmp_path: Path) -> None:
    """Where records are read, others may have partitioned them otherwise; behind an exchange nobody has."""

    def exchanged(builder: StreamsBuilder) -> None:
        words = builder.stream("in", key=str, value=str)
        words.group_by_key().count(store="counts")
        words.group_by(lambda key, _: f"{key}!", key=str, name="by-word").count(store="exchanged")

    stream = Counting(tmp_path, Pipeline(name="exchanged", topology=exchanged))
    keys = [f"k{number}" for number in range(8)]
    stream.batch(*keys)
    with stream.asked() as asked:
        for store, ending, certain in (("counts", "", False), ("exchanged", "!", True)):
            for key in keys:
                said = asked.query_metadata_for_key(store, key + ending)
                found = asked.store(store).get(key + ending)
                assert (found.value, found.task, said.certain) == (1, said.task, certain)
    stream.close()


def test_a_key_is_found_in_whatever_task_it_is(stream: Counting) -> None:
    """A producer has partitioned the topic in its own way."""
    key = "a"
    with_murmur2 = partition_of(key.encode(), 2)
    stream.topics.write("in", RawRecord(key.encode(), b"x", 1000), 1 - with_murmur2)
    stream.batch()
    with stream.asked() as asked:
        found = asked.store("counts").get(key)
    assert (found.value, found.task) == (1, 1 - with_murmur2)


@only(HERE)
def test_a_checkpoint_that_gets_another_plan_is_read_with_it_or_not_at_all(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        counts = asked.store("counts")
        assert counts.get("a").value == 1
        write_plan(stream.paths.current.plan, msgspec.structs.replace(stream.checkpoint, tasks=(1,)))
        assert counts.metadata().tasks == 1
        other = stream.checkpoint.fingerprint | {"format": 0}
        write_plan(stream.paths.current.plan, msgspec.structs.replace(stream.checkpoint, fingerprint=other))
        with pytest.raises(IncompatibleCheckpointError, match="written by another plan"):
            counts.get("a")


def test_stores_that_were_closed_are_not_opened_again(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        counts = asked.store("counts")
    with pytest.raises(ConfigurationError, match="were closed"):
        counts.get("a")


@only(HERE, TOLD)
def test_a_second_one_in_a_process_says_to_share_the_first(stream: Counting) -> None:
    stream.batch("a")
    with stream.asked() as asked:
        assert asked.store("counts").get("a").value == 1
        second = Stream(stream.pipeline, stream.settings)
        with second, pytest.raises(ConfigurationError, match="open in this process already"):
            second.store("counts").get("a")
        assert asked.store("counts").get("a").value == 1


def test_threads_share_a_stream(stream: Counting) -> None:
    keys = [f"k{number}" for number in range(40)]
    stream.batch(*keys)
    with stream.asked() as asked, ThreadPoolExecutor(4) as threads:
        counts = asked.store("counts")
        waiting = threads.submit(counts.get, "k1", min_batch=0)
        assert [found.value for found in threads.map(counts.get, keys * 20)] == [1] * 800
        assert waiting.result().value == 1


def test_the_changes_of_a_batch_are_known_until_the_next_one_begins(stream: Counting) -> None:
    def changed() -> tuple[int, dict[str, int | None] | None]:
        with stream.asked() as opened:
            found = opened.store("counts").changes()
        rows = None if found.rows is None else {row.key: row.value for row in found.rows}
        return found.as_of.batch, rows

    stream.batch("a", "b", "b", "c")
    assert changed() == (0, {"a": 1, "b": 2, "c": 1})
    stream.batch("b")  # only one of the tasks has it
    assert changed() == (1, {"b": 3})
    stream.batch()
    assert changed() == (2, {})
    stream.batch("a", is_committed=False)
    assert changed() == (2, None), "a task has begun the next batch"
    stream.commit()
    assert changed() == (3, {"a": 2})


def test_a_key_that_a_batch_has_removed_is_among_its_changes(tmp_path: Path) -> None:
    def users(builder: StreamsBuilder) -> None:
        builder.table("in", key=str, value=str, store="users")

    with closing(Counting(tmp_path, Pipeline(name="users", topology=users))) as stream:
        stream.batch("a", "b")
        stream.topics.write("in", RawRecord(b"a", None, 1000))
        stream.batch()

        with stream.asked() as opened:
            rows = opened.store("users").changes().rows
        assert [(row.key, row.value, row.timestamp_ms) for row in rows] == [("a", None, None)]
