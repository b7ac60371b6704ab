"""History is read as if Kafka had kept everything: long rows of small ranges as one, what is gone from the archive."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from deltaworks.errors import KafkaReadError, RecordsGoneError
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.lakehouse.archive import ArchiveWriter
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.writes import Span, TableWrite
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.history import History, HistoryReader, LiveReader
from deltaworks.runtime.replay.reading import SequentialReader
from deltaworks.testing.topics import RawRecord
from deltaworks.topology.archives import Archives
from tests.hosts.memory_kafka import MemoryKafka, MemoryReader

ARCHIVES = Archives({"words": "words_archive"})
Record = tuple[str, int, int, int, bytes | None, bytes | None, Headers]


class Connections:
    """Makes readers of a broker in memory that hand over a few records at a time; notes what they are asked for."""

    def __init__(self, kafka: MemoryKafka, portion: int = 7) -> None:
        self.kafka, self.portion = kafka, portion
        self.asked: list[Range] = []
        self.opened = self.closed = 0
        self.handed_over = 0

    def __call__(self) -> Reader:
        self.opened += 1
        return _Portions(self)

    def retain_from(self, topic: str, partition: int, offset: int) -> None:
        """Retention removes what is before."""
        self.kafka.removed[topic, partition] = offset


class _Portions(MemoryReader):
    def __init__(self, connections: Connections) -> None:
        super().__init__(connections.kafka)
        self._connections = connections

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        (wanted,) = ranges
        self._connections.asked.append(wanted)
        for start in range(wanted.start, wanted.stop, self._connections.portion):
            stop = min(start + self._connections.portion, wanted.stop)
            for portion in super().read([Range(wanted.topic, wanted.partition, start, stop)]):
                self._connections.handed_over += sum(len(batch.offsets) for batch in portion)
                yield portion

    def close(self) -> None:
        self._connections.closed += 1


def filled(count: int = 100, partitions: int = 2) -> MemoryKafka:
    kafka = MemoryKafka({"words": partitions})
    for number in range(count):
        for partition in range(partitions):
            headers = (("h", b"%d" % number),) if number % 10 == 0 else ()
            kafka.write("words", RawRecord(None, b"%d/%d" % (partition, number), 1_000 + number, headers), partition)
    return kafka


class Archive:
    """The archive of `words`, written as a stream would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._committer = TableCommitter(root, "shop", "query", [], archives=ARCHIVES.tables)
        self._committer.open(1)
        self._batch_id = -1

    def keep(self, kafka: MemoryKafka, *ranges: Range) -> None:
        for each in ranges:
            self._batch_id += 1
            writer = ArchiveWriter(self.root, ARCHIVES.table, task=each.partition)
            writer.begin(self._batch_id)
            writer.has_read(Span(each.topic, each.partition, each.start, each.stop))
            for (batch,) in MemoryReader(kafka).read([each]):
                writer.add(batch)
            self._committer.commit(self._batch_id, writer.finish())

    def reader(self) -> ArchiveReader:
        return ArchiveReader(self.root, ARCHIVES)


def records_of(batches: Sequence[RecordBatch]) -> list[Record]:
    found: list[Record] = []
    for each in batches:
        headers = each.headers_of_each
        assert each.offsets and (each.headers is None or any(headers))
        for n, offset in enumerate(each.offsets):
            found.append(
                (each.topic, each.partition, offset, each.timestamps_ms[n], each.keys[n], each.values[n], headers[n])
            )
    return found


def in_kafka(kafka: MemoryKafka, ranges: Sequence[Range]) -> list[Record]:
    """Before retention."""
    complete = MemoryKafka(kafka.partitions, kafka.records)
    return records_of([batch for each in ranges for (batch,) in MemoryReader(complete).read([each])])


def all_of(reader: HistoryReader, *ranges: Range) -> list[Record]:
    return records_of([batch for portion in reader.read(ranges) for batch in portion])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("compacted", [(), ("words",)])
def test_there_is_no_seam_between_archive_and_kafka(tmp_path: Path, seed: int, compacted: tuple[str, ...]) -> None:
    rng = random.Random(seed)
    connections = Connections(filled())
    archive = Archive(tmp_path)
    ends = [0, 0]
    while min(ends) < 80:
        partition = rng.randrange(2)
        stop = min(ends[partition] + rng.randrange(1, 30), 80)
        if stop > ends[partition]:
            archive.keep(connections.kafka, Range("words", partition, ends[partition], stop))
        ends[partition] = stop
    for partition in range(2):
        connections.retain_from("words", partition, rng.randrange(80))
    reader = HistoryReader(connections, archive.reader(), compacted=compacted)
    for _ in range(10):
        ranges = [Range("words", p, *sorted(rng.randrange(101) for _ in range(2))) for p in range(2)]
        assert all_of(reader, *ranges) == in_kafka(connections.kafka, ranges)
        assert all_of(reader, ranges[0]) == in_kafka(connections.kafka, ranges[:1])
    assert [reader.beginning("words", p) for p in range(2)] == [0, 0]
    reader.close()
    assert connections.opened == connections.closed


def test_retention_may_overtake_a_reader(tmp_path: Path) -> None:
    connections = Connections(filled())
    archive = Archive(tmp_path)
    archive.keep(connections.kafka, Range("words", 0, 0, 20))
    reader = HistoryReader(connections, archive.reader())
    assert reader.beginning("words", 0) == 0  # it has looked at the archive, too
    portions = reader.read([Range("words", 0, 0, 100)])
    found = [*next(portions)]
    archive.keep(connections.kafka, Range("words", 0, 20, 60))
    connections.retain_from("words", 0, 55)
    found += [batch for portion in portions for batch in portion]
    assert records_of(found) == in_kafka(connections.kafka, [Range("words", 0, 0, 100)])
    assert connections.handed_over == 7 + 45


def test_of_a_compacted_topic_the_archive_comes_first(tmp_path: Path) -> None:
    connections = Connections(filled())
    archive = Archive(tmp_path)
    archive.keep(connections.kafka, Range("words", 0, 10, 40))
    archive.keep(connections.kafka, Range("words", 0, 60, 70))
    reader = HistoryReader(connections, archive.reader(), compacted=["words"])
    assert all_of(reader, Range("words", 0, 12, 40)) == in_kafka(connections.kafka, [Range("words", 0, 12, 40)])
    assert connections.opened == 0
    assert all_of(reader, Range("words", 0, 0, 100)) == in_kafka(connections.kafka, [Range("words", 0, 0, 100)])
    assert [(each.start, each.stop) for each in connections.asked] == [(0, 10), (40, 60), (70, 100)]


def test_an_archive_is_whole_if_it_began_with_the_topic_and_has_no_gap(tmp_path: Path) -> None:
    kafka, archive = filled(), Archive(tmp_path)
    archive.keep(kafka, Range("words", 0, 0, 40), Range("words", 1, 10, 40))
    assert archive.reader().is_whole("words", {"0": 40})
    assert not archive.reader().is_whole("words", {"0": 41})
    assert not archive.reader().is_whole("words", {"0": 40, "1": 40})
    archive.keep(kafka, Range("words", 0, 50, 60))
    assert not archive.reader().is_whole("words", {"0": 60})
    assert not archive.reader().is_whole("words", {}) and not archive.reader().is_whole("another", {"0": 1})


def test_what_neither_has_is_named(tmp_path: Path) -> None:
    connections = Connections(filled())
    archive = Archive(tmp_path)
    archive.keep(connections.kafka, Range("words", 0, 10, 20), Range("words", 0, 30, 40))
    connections.retain_from("words", 0, 50)
    reader = HistoryReader(connections, archive.reader())
    held = r"Kafka begins at 50; the archive 'words_archive' has 10 to 19, 30 to 39"
    for ranges, gone in [((0, 100), "0 to 9"), ((15, 100), "20 to 29"), ((35, 60), "40 to 49"), ((45, 47), "45 to 46")]:
        with pytest.raises(KafkaReadError, match=rf"words-0: offsets {gone} are gone. {held}"):
            all_of(reader, Range("words", 0, *ranges))
    assert reader.beginning("words", 0) == 50
    assert all_of(reader, Range("words", 0, 12, 19)) == in_kafka(connections.kafka, [Range("words", 0, 12, 19)])


def test_a_topic_without_an_archive_is_read_from_kafka() -> None:
    connections = Connections(filled())
    reader = HistoryReader(connections, None)
    assert all_of(reader, Range("words", 1, 3, 50)) == in_kafka(connections.kafka, [Range("words", 1, 3, 50)])
    connections.retain_from("words", 1, 4)
    with pytest.raises(KafkaReadError, match=r"words-1: offsets 3 to 3 are gone\. Kafka begins at 4; the topic"):
        all_of(HistoryReader(connections, None), Range("words", 1, 3, 50))


def test_a_broker_that_fails_is_not_taken_for_retention() -> None:
    connections = Connections(filled())

    class Failing(_Portions):
        def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
            raise KafkaReadError("the broker is away")

    with pytest.raises(KafkaReadError, match="the broker is away"):
        all_of(HistoryReader(lambda: Failing(connections), None), Range("words", 0, 0, 5))


@pytest.mark.parametrize("seed", range(4))
def test_a_long_row_of_small_ranges_is_read_as_one_of_each_partition(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    connections = Connections(filled(count=300, partitions=3))
    archive = Archive(tmp_path)
    for partition in range(3):
        archive.keep(connections.kafka, Range("words", partition, 0, 120))
        connections.retain_from("words", partition, rng.randrange(60, 120))
    steps: list[list[Range]] = []
    ends = [5, 0, 17]
    while min(ends) < 300:
        step = []
        for partition in rng.sample(range(3), rng.randrange(4)):
            stop = min(300, ends[partition] + rng.randrange(12))
            step.append(Range("words", partition, ends[partition], stop))
            ends[partition] = stop
        steps.append(step)
    reader = HistoryReader(connections, archive.reader())
    assert isinstance(reader, SequentialReader)
    found = list(map(records_of, reader.sequential(steps)))
    assert found == [in_kafka(connections.kafka, step) for step in steps]
    assert sorted(each.partition for each in connections.asked) == [0, 1, 2]
    assert connections.opened == connections.closed


def test_what_follows_is_not_read_before_it_is_asked_for() -> None:
    connections = Connections(filled(count=10_000))
    steps = [[Range("words", p, start, start + 10) for p in range(2)] for start in range(0, 10_000, 10)]
    reading = HistoryReader(connections, None).sequential(steps)
    for number in range(1, 500):
        assert len(records_of(next(reading))) == 20
        assert connections.handed_over <= number * 20 + 2 * connections.portion
    reading.close()  # type: ignore[attr-defined]  # a generator
    assert connections.opened == connections.closed


def test_offsets_that_are_no_records_belong_to_a_range_too(tmp_path: Path) -> None:
    kafka = MemoryKafka({"words": 1})
    archive = Archive(tmp_path)
    for offset in range(30):
        kafka.write("words", RawRecord(b"k", b"%d" % offset, 1_000), 0)
    with_holes = MemoryKafka({"words": 1}, {"words": {0: kafka.records["words"][0]}})

    class Holes(MemoryReader):
        """Odd offsets are markers of transactions."""

        def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
            for each in ranges:
                for offset in range(each.start, each.stop):
                    if offset % 2 == 0:
                        yield from super().read([Range(each.topic, each.partition, offset, offset + 1)])

    steps = [
        [Range("words", 0, n, n + width)] for n, width in [(0, 1), (1, 1), (2, 2), (4, 1), (5, 4), (9, 1), (10, 1)]
    ]
    reader = HistoryReader(lambda: Holes(with_holes), archive.reader())
    offsets = [[record[2] for record in records_of(step)] for step in reader.sequential(steps)]
    assert offsets == [[0], [], [2], [4], [6, 8], [], [10]]


def test_steps_that_leave_something_out(tmp_path: Path) -> None:
    connections = Connections(filled())
    steps = [[Range("words", 0, 0, 5)], [Range("words", 0, 20, 22)], [], [Range("words", 0, 22, 30)]]
    found = list(map(records_of, HistoryReader(connections, None).sequential(steps)))
    assert found == [in_kafka(connections.kafka, step) for step in steps]
    assert [(each.start, each.stop) for each in connections.asked] == [(0, 5), (20, 30)]


def test_history_travels(tmp_path: Path) -> None:
    history = History("localhost:1", tmp_path, ARCHIVES, frozenset({"words"}))
    assert pickle.loads(pickle.dumps(history)) == history
    assert isinstance(history(), HistoryReader)


class _Kept:
    """The counterpart of a `HistoryReader` whose archive has what a broker in memory has had."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._reader = MemoryReader(MemoryKafka(records=kafka.records))

    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        return self._reader.read(ranges)

    def close(self) -> None: ...


class _Nothing(_Kept):
    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        raise KafkaReadError("offsets are gone")


def _live(history: type[_Kept]) -> LiveReader:
    kafka = MemoryKafka({"words": 1})
    for number in range(6):
        kafka.write("words", RawRecord(b"k", str(number).encode(), number))
    kafka.removed["words", 0] = 4
    return LiveReader(MemoryReader(kafka), lambda: history(kafka))  # type: ignore[arg-type, return-value]


def test_a_stream_reads_from_the_archive_what_retention_has_removed() -> None:
    portions = list(_live(_Kept).read([Range("words", 0, 2, 6)]))
    assert [offset for portion in portions for batch in portion for offset in batch.offsets] == [2, 3, 4, 5]


def test_a_stream_reads_no_archive_of_another_topic_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer = TableCommitter(tmp_path, "shop", "query", [], archives=ARCHIVES.tables)
    committer.open(1)
    write = TableWrite("words_archive", 0, (), spans=(Span("words", 0, 0, 9),))
    committer.commit(0, [write], topics={"words": "the one before"})
    there: list[dict[str, str]] = [{"words": "the one before"}, {"words": "another"}, {}]
    monkeypatch.setattr(admin, "admin", lambda bootstrap: None)
    monkeypatch.setattr(admin, "topic_ids", lambda client, topics: there.pop(0))

    for held in ([(0, 9)], [], []):
        assert History("", tmp_path, ARCHIVES)()._spans("words", 0) == held


def test_what_no_archive_has_either_is_told_as_before() -> None:
    with pytest.raises(RecordsGoneError, match="out of range"):
        list(_live(_Nothing).read([Range("words", 0, 2, 6)]))


def test_a_range_without_a_record_is_read_like_any_other() -> None:
    """Offsets of aborted transactions and of the marks of committed ones."""

    class Nothing:
        def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
            yield [RecordBatch(each.topic, each.partition, [], [], [], []) for each in ranges]

        def beginning(self, topic: str, partition: int) -> int:
            return 0

        def close(self) -> None: ...

    reader = HistoryReader(Nothing, None)
    assert [len(batch.offsets) for portion in reader.read([Range("words", 0, 0, 2)]) for batch in portion] == [0]
