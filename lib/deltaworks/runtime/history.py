"""Reads again what a stream has read: from Kafka, and from the archive if Kafka has removed it since.

A recorded micro-batch is a few records of each topic-partition. Many of them in a row are read as one range per
topic-partition (`HistoryReader.sequential`): a new position for every batch would cost a round trip to the broker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from deltaworks.config import Kafka
from deltaworks.errors import KafkaReadError, RecordsGoneError
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.runtime.consumer import RangeReader
from deltaworks.runtime.global_tables import Reader
from deltaworks.topology.archives import Archives

_NEVER = 1 << 62
"""The first offset of a topic that does not exist."""


@dataclass(frozen=True)
class History:
    """Makes readers of the history of one pipeline; is sent to the processes that read."""

    bootstrap: Kafka
    tables_root: Path
    archives: Archives
    """The archives of the plan that is replayed, whether it still writes them or not."""
    compacted: frozenset[str] = frozenset()
    """See `HistoryReader`."""
    gone: frozenset[str] = frozenset()
    """See `HistoryReader`."""
    topics: Mapping[str, str] | None = None
    """The ids of the topics, as far as they are known, so that no archive of another topic of the same name is read;
    None: the ids that Kafka has."""

    def __call__(self) -> HistoryReader:
        archive = ArchiveReader(self.tables_root, self.archives, self._id if self.topics is None else self.topics.get)
        return HistoryReader(lambda: RangeReader(self.bootstrap), archive, compacted=self.compacted, gone=self.gone)

    def _id(self, topic: str) -> str:
        return admin.topic_ids(admin.admin(self.bootstrap), [topic]).get(topic, "none")


class LiveReader:
    """`Reader` of a stream: Kafka, and the archive of a topic if Kafka's retention was faster than the stream.

    Args:
        kafka: reads the broker.
        history: makes the reader of Kafka and archives when it is needed.
    """

    def __init__(self, kafka: Reader, history: Callable[[], HistoryReader]) -> None:
        self._kafka, self._history = kafka, history

    def read(self, ranges: list[Range]) -> Iterator[list[RecordBatch]]:
        """See `RangeReader`.

        Raises:
            RecordsGoneError: neither Kafka nor an archive has the records.
            KafkaReadError: the broker did not answer.
        """
        begun = False
        try:
            for portion in self._kafka.read(ranges):
                begun = True
                yield portion
        except RecordsGoneError as gone:
            if begun:
                raise KafkaReadError(f"{gone.message} They were removed meanwhile; the batch runs again.") from gone
            yield from self._kept(ranges, gone)

    def _kept(self, ranges: list[Range], gone: RecordsGoneError) -> Iterator[list[RecordBatch]]:
        with closing(self._history()) as history:
            try:
                first = next(portions := history.read(ranges), None)
            except KafkaReadError:
                raise gone from None
            if first is not None:
                yield first
            yield from portions

    def beginning(self, topic: str, partition: int) -> int:
        """The first offset in Kafka."""
        return self._kafka.beginning(topic, partition)

    def close(self) -> None:
        self._kafka.close()


class HistoryReader:
    """`Reader` that joins archive and Kafka without a seam.

    Args:
        connect: makes the reader of Kafka.
        archive: has records that Kafka no longer has; None: there is no archive.
        compacted: topics from which Kafka removes records that have successors, at any position. Only their archive has
            everything that the stream has read, so it comes first.
        gone: topics that Kafka no longer has, even if a topic of the name exists now: only the archive is read.
    """

    def __init__(
        self,
        connect: Callable[[], Reader],
        archive: ArchiveReader | None,
        *,
        compacted: Collection[str] = (),
        gone: Collection[str] = (),
    ) -> None:
        self._connect, self._archive, self._compacted = connect, archive, frozenset(compacted)
        self._gone = frozenset(gone)
        self._kafka: Reader | None = None
        self._low: dict[tuple[str, int], int] = {}
        """Where Kafka begins, as far as known."""

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        """See `RangeReader`.

        Raises:
            KafkaReadError: neither Kafka nor an archive has the records, or the broker did not answer.
            TableError: a file of an archive is missing.
        """
        wanted = [each for each in ranges if each.stop > each.start]
        if len(wanted) == 1:
            yield from ([batch] for batch in self._records(wanted[0]))
        elif wanted:
            yield [batch for each in wanted for batch in self._records(each)]

    def sequential(self, ranges_per_step: Sequence[Sequence[Range]]) -> Iterator[list[RecordBatch]]:
        """The records of each step, those of each topic-partition in offset order.

        Each topic-partition is read once from end to end over a separate connection. Memory holds the records of one
        step, and what the connections have prefetched.

        Args:
            ranges_per_step: ascending per topic-partition.

        Raises:
            KafkaReadError, TableError: see `read`.
        """
        ranges = defaultdict(list)
        for step in ranges_per_step:
            for each in step:
                ranges[each.topic, each.partition].append(each)
        tracks = {part: _Track(self._another(), mine) for part, mine in ranges.items()}
        try:
            for step in ranges_per_step:
                yield [batch for each in step for batch in tracks[each.topic, each.partition].take(each)]
        finally:
            for track in tracks.values():
                track.close()

    def beginning(self, topic: str, partition: int) -> int:
        """The first offset after which nothing is missing.

        Raises:
            KafkaReadError: the broker did not answer.
        """
        low = self._beginning(topic, partition)
        return next((start for start, stop in self._spans(topic, partition) if start <= low <= stop), low)

    def close(self) -> None:
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None

    def _another(self) -> HistoryReader:
        return HistoryReader(self._connect, self._archive, compacted=self._compacted, gone=self._gone)

    def _records(self, wanted: Range) -> Iterator[RecordBatch]:
        """The records of one range, in portions."""
        position = wanted.start
        while position < wanted.stop:
            from_archive, stop = self._next(wanted, position)
            if from_archive:
                assert self._archive is not None
                yield from self._archive.read(wanted.topic, wanted.partition, position, stop)
                position = stop
                continue
            try:
                for portion in self._connected().read([Range(wanted.topic, wanted.partition, position, stop)]):
                    for batch in portion:
                        position = batch.offsets[-1] + 1 if batch.offsets else position  # a range without records
                        yield batch
                position = stop
            except (KafkaReadError, RecordsGoneError):
                # Retention may have removed the next records since this reader looked.
                self.close()
                self._low.pop((wanted.topic, wanted.partition), None)
                if self._beginning(wanted.topic, wanted.partition) <= position:
                    raise

    def _next(self, wanted: Range, position: int) -> tuple[bool, int]:
        """Who has the records from a position on (True: the archive), and up to which offset."""
        topic, partition = wanted.topic, wanted.partition
        if topic in self._compacted and (held_to := self._held_to(wanted, position)) is not None:
            return True, min(held_to, wanted.stop)
        low = self._beginning(topic, partition)
        if position >= low:
            later = [start for start, _ in self._spans(topic, partition)] if topic in self._compacted else []
            return False, min([wanted.stop, *(start for start in later if start > position)])
        if (held_to := self._held_to(wanted, position)) is None and self._archive is not None:
            self._archive.refresh()  # it may have been written since this reader looked
            held_to = self._held_to(wanted, position)
        if held_to is None:
            raise self._missing(wanted, position, low)
        return True, min(held_to, wanted.stop, low)

    def _held_to(self, wanted: Range, position: int) -> int | None:
        """Up to which offset the archive has everything from a position on; None: it lacks the first record."""
        spans = self._spans(wanted.topic, wanted.partition)
        return next((stop for start, stop in spans if start <= position < stop), None)

    def _missing(self, wanted: Range, position: int, low: int) -> KafkaReadError:
        spans = self._spans(wanted.topic, wanted.partition)
        next_there = min([low, wanted.stop, *(start for start, _ in spans if start > position)])
        table = None if self._archive is None else self._archive.table(wanted.topic)
        held = ", ".join(f"{start} to {stop - 1}" for start, stop in spans) or "none of this partition"
        return KafkaReadError(
            f"{wanted.topic}-{wanted.partition}: offsets {position} to {next_there - 1} are gone. "
            f"{'Kafka no longer has the topic' if low == _NEVER else f'Kafka begins at {low}'}; "
            + (f"the archive '{table}' has {held}" if table else "the topic has no archive"),
            hint="a replay can only begin where all records are available; Pipeline(archive=True) keeps future ones",
        )

    def _spans(self, topic: str, partition: int) -> list[tuple[int, int]]:
        return [] if self._archive is None else self._archive.spans(topic, partition)

    def _beginning(self, topic: str, partition: int) -> int:
        """Where Kafka begins."""
        if topic in self._gone:
            return _NEVER
        if (topic, partition) not in self._low:
            self._low[topic, partition] = self._connected().beginning(topic, partition)
        return self._low[topic, partition]

    def _connected(self) -> Reader:
        if self._kafka is None:
            self._kafka = self._connect()
        return self._kafka


class _Track:
    """One topic-partition, read from end to end and handed out range by range."""

    def __init__(self, reader: HistoryReader, ranges: Sequence[Range]) -> None:
        self._reader = reader
        self._records = self._read(_joined(ranges))
        self._ahead: RecordBatch | None = None
        """Records that were read already and belong to a later range."""

    def take(self, wanted: Range) -> Iterator[RecordBatch]:
        """The records of the next range."""
        while True:
            batch = self._ahead if self._ahead is not None else next(self._records, None)
            self._ahead = None
            if batch is None:
                return
            count = bisect_left(batch.offsets, wanted.stop)
            if count < len(batch.offsets):
                self._ahead = _cut(batch, count, len(batch.offsets))
            if count:
                yield batch if self._ahead is None else _cut(batch, 0, count)
            if self._ahead is not None or batch.offsets[-1] + 1 == wanted.stop:
                return

    def close(self) -> None:
        self._records.close()
        self._reader.close()

    def _read(self, ranges: Sequence[Range]) -> Generator[RecordBatch, None, None]:
        for each in ranges:
            for portion in self._reader.read([each]):
                yield from portion


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Joins ranges that follow each other without a gap."""
    joined: list[Range] = []
    for each in ranges:
        if joined and joined[-1].stop == each.start:
            joined[-1] = Range(each.topic, each.partition, joined[-1].start, each.stop)
        else:
            joined.append(each)
    return joined


def _cut(batch: RecordBatch, start: int, stop: int) -> RecordBatch:
    headers = None if batch.headers is None else batch.headers[start:stop]
    return RecordBatch(
        batch.topic,
        batch.partition,
        batch.offsets[start:stop],
        batch.timestamps_ms[start:stop],
        batch.keys[start:stop],
        batch.values[start:stop],
        headers if headers is not None and any(headers) else None,
    )
