"""Which recorded batches are read to explain a row, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from deltaworks.control.batches import BatchRecord, Recreated, is_before
from deltaworks.explain.tracing import InputRecord, TracedBatch
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import RecordBatch
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.replay.model import ReplayPlan
from deltaworks.runtime.global_tables import Reader
from deltaworks.runtime.replay.reading import read_steps
from deltaworks.topology.plan import Plan


@dataclass
class Reading:
    """The batches to read, and what could not be read."""

    batches: list[tuple[BatchRecord, tuple[Range, ...]]]
    records: int = 0
    """Offsets to read."""
    gone: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """Topic and partition -> the offsets, first and next, that neither Kafka nor an archive has."""
    limit: str | None = None
    """What the limit of records left out, for people."""

    @property
    def first_batch(self) -> int | None:
        """The first batch that is read; None: none is."""
        return self.batches[0][0].batch if self.batches else None

    @property
    def notes(self) -> list[str]:
        """What was not read, for people."""
        lines = [
            f"{topic}-{partition}: offsets {start} to {stop - 1} are gone; neither Kafka nor an archive has them"
            for (topic, partition), (start, stop) in sorted(self.gone.items())
        ]
        return [*lines, *([] if self.limit is None else [self.limit])]

    def read(self, reader: Reader) -> Iterator[TracedBatch]:
        """The records.

        Raises:
            KafkaReadError: the broker did not answer, or records were removed meanwhile.
            TableError: a file of an archive is missing.
        """
        records = read_steps(reader, [ranges for _, ranges in self.batches if ranges])
        for record, ranges in self.batches:
            parts = [part for portion in next(records) for part in portion] if ranges else []
            yield TracedBatch(record.batch, record.wall_clock_ms, record.tick, parts)

    def again(self, records: Sequence[InputRecord]) -> Iterator[TracedBatch]:
        """The batches once more, with other records in the place of those that were read, in the same order."""
        by_batch = {batch: list(each) for batch, each in groupby(records, key=lambda record: record.batch)}
        for record, _ in self.batches:
            parts = groupby(by_batch.get(record.batch, ()), key=lambda each: (each.topic, each.partition))
            yield TracedBatch(
                record.batch,
                record.wall_clock_ms,
                record.tick,
                [_part(topic, partition, list(each)) for (topic, partition), each in parts],
            )


def _part(topic: str, partition: int, records: Sequence[InputRecord]) -> RecordBatch:
    return RecordBatch(
        topic,
        partition,
        [each.offset for each in records],
        [each.timestamp_ms for each in records],
        [each.key for each in records],
        [each.value for each in records],
        [each.headers for each in records],
    )


def plan_reading(
    records: Sequence[BatchRecord],
    plan: Plan,
    replay: ReplayPlan,
    beginning: Callable[[str, int], int],
    *,
    last_batch: int,
    max_records: int,
) -> Reading:
    """Decides what to read.

    Args:
        records: of all batches.
        plan: of the pipeline.
        replay: says where the row's dependencies begin, and which topics were recreated.
        beginning: the first offset of a partition that can be read.
        last_batch: the last batch that may have written the row.
        max_records: the limit of records; the oldest batches are left out, or the newest if the row's time says where
            it begins. One batch is read in any case.
    """
    found = Reading([])
    begin = replay.begin
    whole = {*(() if begin is None else begin.topics), *plan.global_topics}
    for record in records:
        if record.batch > last_batch:
            break
        is_whole = begin is None or record.batch >= begin.batch
        ranges = _ranges(record, plan, replay.recreated, beginning, found)
        ranges = tuple(each for each in ranges if is_whole or each.topic in whole)
        if ranges or (is_whole and record.tick):
            found.batches.append((record, ranges))
    _limit(found, max_records, forward=begin is not None)
    return found


def begins_at(reader: Reader, archive: ArchiveReader, gone: Sequence[str]) -> Callable[[str, int], int]:
    """Says where the records of a partition begin that can be read."""
    known: dict[tuple[str, int], int] = {}

    def beginning(topic: str, partition: int) -> int:
        if (topic, partition) not in known:
            spans = archive.spans(topic, partition) if topic in gone else []
            known[topic, partition] = spans[0][0] if spans else reader.beginning(topic, partition)
        return known[topic, partition]

    return beginning


def _ranges(
    record: BatchRecord,
    plan: Plan,
    recreated: Mapping[str, Recreated],
    beginning: Callable[[str, int], int],
    found: Reading,
) -> tuple[Range, ...]:
    ranges: list[Range] = []
    for topic, parts in record.offsets.items():
        if not plan.uses(topic):
            continue
        for text, (start, stop) in parts.items():
            partition = int(text)
            there = stop if is_before(record, topic, recreated) else min(max(beginning(topic, partition), start), stop)
            if there > start:
                before, _ = found.gone.get((topic, partition), (start, start))
                found.gone[topic, partition] = before, there
            if stop > there:
                ranges.append(Range(topic, partition, there, stop))
    return tuple(ranges)


def _limit(found: Reading, max_records: int, *, forward: bool) -> None:
    """Leaves out what is too much."""
    sizes = [sum(each.stop - each.start for each in ranges) for _, ranges in found.batches]
    found.records = sum(sizes)
    if found.records <= max_records:
        return
    kept, total = 0, 0
    for size in sizes if forward else reversed(sizes):
        if kept and total + size > max_records:
            break
        kept, total = kept + 1, total + size
    found.batches = found.batches[:kept] if forward else found.batches[-kept:]
    found.records = total
    edge = found.batches[-1 if forward else 0][0].batch
    where, others = ("up", "newer") if forward else ("back", "older")
    found.limit = (
        f"read {total:,} of {sum(sizes):,} records, {where} to batch {edge}; {others} ones were not read, because "
        f"--max-records is {max_records}; --max-records {sum(sizes)} reads all of them"
    )
