"""The batch record: offsets and wall clock of every micro-batch, kept as long as a replay may need them.

With it, driver and replay reproduce the order in which the stream processed records. It has one JSON line per batch, in
files of `_PER_FILE` batches. A batch that ran twice has two equal lines; readers take the last.

An object store cannot append to a file: see `batches_in_store`.

Offsets refer to records of one topic. A recreated topic has the same name, but other records at the same offsets. So a
record has the ids of the topics that its batch has read; `topics_read` tells where they change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deltaworks.control.batches_in_store import StoredRecords
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Range
from deltaworks.object_path import ObjectPath

_PER_FILE = 10_000


class BatchRecord(msgspec.Struct, frozen=True):
    """One micro-batch."""

    batch: int
    wall_clock_ms: int
    offsets: dict[str, dict[str, tuple[int, int]]]
    """`{topic: {partition: (first, next)}}`; partitions without records are absent."""
    tick: bool = False
    """Whether every task that depends on the wall clock ran, with or without records."""
    topics: dict[str, str] = {}
    """The ids of the topics in `offsets`; empty in records from before this field existed."""


_decode = msgspec.json.Decoder(BatchRecord).decode


class Recreated(msgspec.Struct, frozen=True):
    """A recreated topic: earlier batches read the old topic, later ones the new topic of the same name."""

    batch: int
    """The first batch that read the current topic."""
    before_ms: int
    """The wall clock of the last batch that read the earlier topic."""


@dataclass(frozen=True)
class TopicsRead:
    """The topics that batches have read."""

    ids: Mapping[str, str]
    """The topic ids of the last batches that read them; unknown ones are absent."""
    recreated: Mapping[str, Recreated]
    """The topics that were recreated since the first batch."""

    def of(self, topics: Collection[str]) -> TopicsRead:
        """Only these."""
        ids = {topic: id for topic, id in self.ids.items() if topic in topics}
        return TopicsRead(ids, {topic: made for topic, made in self.recreated.items() if topic in topics})


def record_of(
    batch_id: int, wall_clock_ms: int, ranges: Sequence[Range], *, tick: bool, topics: Mapping[str, str] | None = None
) -> BatchRecord:
    """The record of a batch.

    Args:
        batch_id: id of the batch.
        wall_clock_ms: time of the batch.
        ranges: the ranges that it has read.
        tick: see `BatchRecord`.
        topics: ids of these topics, and perhaps of others.
    """
    offsets: dict[str, dict[str, tuple[int, int]]] = {}
    for r in sorted(ranges, key=lambda r: (r.topic, r.partition)):
        offsets.setdefault(r.topic, {})[str(r.partition)] = (r.start, r.stop)
    ids = {topic: id for topic, id in (topics or {}).items() if topic in offsets}
    return BatchRecord(batch_id, wall_clock_ms, offsets, tick, ids)


def append(
    directory: Path, record: BatchRecord, admitted: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Writes the record durably.

    Args:
        directory: of the record.
        record: of a batch that is done.
        admitted: what is written is written within it; it raises if a newer driver has taken over.
    """
    if isinstance(directory, ObjectPath):
        StoredRecords(directory).append(msgspec.json.encode(record), admitted)
        return
    with admitted():
        _append(directory, record)


def _append(directory: Path, record: BatchRecord) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{record.batch // _PER_FILE * _PER_FILE:012d}.jsonl"
    with path.open("ab") as file:
        if file.tell() and not _ends_with_newline(path):
            file.write(b"\n")  # a crash truncated the last line; that batch runs and is written again
        file.write(_lines([record]))
        file.flush()
        os.fsync(file.fileno())


def read(directory: Path) -> Iterator[BatchRecord]:
    """Reads every batch once, in order."""
    if isinstance(directory, ObjectPath):
        yield from map(_decode, StoredRecords(directory).read())
        return
    for path in _files(directory):
        yield from _records(path)


def since(directory: Path, wall_clock_ms: int) -> list[BatchRecord]:
    """The batches from a wall clock on, in order; only the files that have some are read."""
    if isinstance(directory, ObjectPath):
        lines = StoredRecords(directory).newest(lambda line: _decode(line).wall_clock_ms < wall_clock_ms)
        return [record for record in map(_decode, lines) if record.wall_clock_ms >= wall_clock_ms]
    found: list[list[BatchRecord]] = []
    for path in reversed(_files(directory)):
        records = _records(path)
        found.append([record for record in records if record.wall_clock_ms >= wall_clock_ms])
        if records and records[0].wall_clock_ms < wall_clock_ms:
            break
    return [record for records in reversed(found) for record in records]


def last(directory: Path) -> BatchRecord | None:
    """The newest batch."""
    if isinstance(directory, ObjectPath):
        newest = StoredRecords(directory).last()
        return None if newest is None else _decode(newest)
    return next((records[-1] for path in reversed(_files(directory)) if (records := _records(path))), None)


def last_number(directory: Path) -> int:
    """The number of the newest batch; -1: there is none."""
    newest = last(directory)
    return -1 if newest is None else newest.batch


def topics_read(records: Iterable[BatchRecord]) -> TopicsRead:
    """The topics that batches have read, and since when.

    Args:
        records: all records, in order. In records without ids, a topic counts as recreated where one begins before the
            end of another.
    """
    ids: dict[str, str] = {}
    recreated: dict[str, Recreated] = {}
    clocks: dict[str, int] = {}
    ends: dict[str, dict[str, int]] = {}
    for record in records:
        for topic, parts in record.offsets.items():
            id, mine = record.topics.get(topic), ends.setdefault(topic, {})
            other = id is not None and id != ids.get(topic, id)
            if other or any(start < mine.get(partition, 0) for partition, (start, _) in parts.items()):
                recreated[topic] = Recreated(record.batch, clocks[topic])
                mine.clear()
                ids.pop(topic, None)
            if id is not None:
                ids[topic] = id
            mine.update({partition: stop for partition, (_, stop) in parts.items()})
            clocks[topic] = record.wall_clock_ms
    return TopicsRead(ids, recreated)


def is_before(record: BatchRecord, topic: str, recreated: Mapping[str, Recreated]) -> bool:
    """Whether a batch is older than the current topic."""
    return topic in recreated and record.batch < recreated[topic].batch


def set_aside(directory: Path, first: int, to: Path) -> None:
    """Moves the batches from `first` on from the record to another folder.

    If it is interrupted, it can be called again; batches that were moved by then stay.
    """
    if isinstance(directory, ObjectPath) and isinstance(to, ObjectPath):
        StoredRecords(directory).set_aside(first, to)
        return
    for path in reversed(_files(directory)):  # the newest first, so that the record never has a gap
        records = _records(path)
        kept = [record for record in records if record.batch < first]
        if len(kept) == len(records):
            continue
        replace_file(to / path.name, _lines(records[len(kept) :]))
        if kept:
            replace_file(path, _lines(kept))
        else:
            path.unlink()


def _files(directory: Path) -> list[Path]:
    """The files of the record, oldest first."""
    return sorted(directory.glob("*.jsonl"))


def _records(path: Path) -> list[BatchRecord]:
    """The records of a file, in order; for a batch that ran twice, the last one."""
    records: dict[int, BatchRecord] = {}
    for line in path.read_bytes().splitlines():
        try:
            record = _decode(line)
        except msgspec.DecodeError:
            continue
        records[record.batch] = record
    return [records[batch] for batch in sorted(records)]


def _lines(records: Sequence[BatchRecord]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
