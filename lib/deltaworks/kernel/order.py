"""The order contract: the order in which a task takes the records of a micro-batch.

Records of a topic-partition keep their offset order. Across partitions the head with the lowest timestamp goes first;
topic and partition break ties. A record that does not decode never becomes a head.

Taking the lowest head repeatedly is the same as sorting by the largest timestamp seen so far in each partition: a
record older than its predecessor is the lowest head as soon as the predecessor is gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import Any, Protocol

from deltaworks.errors import RecordPosition, SetAsideError, StreamsError
from deltaworks.kernel.context import NO_HEADERS, Process, TaskContext
from deltaworks.kernel.records import Coordinates, Headers
from deltaworks.topology.nodes.sources import Source
from deltaworks.topology.records import Header
from deltaworks.topology.resend import header_of
from deltaworks.topology.timestamps import (
    ConsumedRecord,
    TimestampExtractor,
    Timestamps,
    TimestampTooFarAhead,
    latest_ms,
)

_CHUNK = 256
"""Records decoded at a time; few enough that they are still in the CPU cache when their turn comes."""


@dataclass(slots=True)
class Columns:
    """Decoded records of one batch; never empty."""

    number: int
    """Number of the batch in `TaskContext.batches`."""
    indices: Sequence[int]
    keys: list[Any]
    values: list[Any]
    timestamps_ms: list[int]
    headers: Iterable[Headers]
    entry: Process | None = None
    """Where they enter the topology; None: where all records of their partition do."""


class Resends(Protocol):
    """Decides about records that are sent again; see `resend.py`."""

    def entry(self, source: Source, record: Coordinates, header: bytes | None) -> Process | None: ...


class Partition:
    """The available records of one topic-partition."""

    def __init__(
        self,
        source: Source,
        entry: Process,
        numbers: Iterable[int],
        context: TaskContext,
        newest_ms: int = -1,
        limit: Timestamps | None = None,
        set_aside: frozenset[int] = frozenset(),
        resends: Resends | None = None,
    ) -> None:
        """
        Args:
            entry: The point at which its records enter the topology.
            numbers: Its batches, in offset order; asked for the next one when all before have been processed.
            newest_ms: The largest timestamp of the batches before.
            limit: The limit of its records' timestamps; None: any timestamp.
            set_aside: Offsets of records that count as failed without being decoded.
            resends: Decides about records that are sent again; None: they are like others.
        """
        self.entry = entry
        self.newest_ms = newest_ms
        """The largest timestamp decoded so far: partition time."""
        self._source = source
        self._limit = limit
        self._numbers = numbers
        self._context = context
        self._set_aside = set_aside
        self._resends = resends
        self._skips_null = source.on_null != "forward"
        self._skips_empty = source.on_null == "skip_empty"

    def chunks(self) -> Iterator[Columns]:
        """The records that decode. A request for the next chunk means that the one before has been processed."""
        for number in self._numbers:
            size = len(self._context.batches[number].offsets)
            for start in range(0, size, _CHUNK):
                for columns in self._decode(number, range(start, min(start + _CHUNK, size))):
                    self.newest_ms = max(self.newest_ms, max(columns.timestamps_ms))
                    yield columns

    def _decode(self, number: int, indices: range) -> Iterator[Columns]:
        """A record that is sent again is decoded when its predecessors have been processed."""
        start = indices.start
        for index, header in self._resends_in(number, indices):
            yield from self._decode_together(number, range(start, index))
            yield from self._sent_again(number, index, header)
            start = index + 1
        yield from self._decode_together(number, range(start, indices.stop))

    def _decode_together(self, number: int, indices: range) -> Iterator[Columns]:
        if not indices:
            return iter(())
        if self._source.timestamp_extractor is None:
            try:
                self._require_wanted(number, indices)
                return iter((self._columns(number, indices),))
            except Exception:  # one of them fails; which one, and how, shows when they are taken one by one
                pass
        return self._decode_each(number, indices)

    def _decode_each(self, number: int, indices: range) -> Iterator[Columns]:
        """Decodes record by record; a failure is reported when its predecessors have been processed.

        Sources with a timestamp extractor always use it, because each record moves partition time. If the extractor
        returns a negative time, the record is dropped; if it raises, the stream ends.
        """
        batch, context, source = self._context.batches[number], self._context, self._source
        extractor = source.timestamp_extractor
        good: list[int] = []
        all_headers: list[Headers] = []
        columns = Columns(number, good, [], [], [], all_headers)
        for index in indices:
            key_bytes, value_bytes = batch.keys[index], batch.values[index]
            try:
                self._require_wanted(number, range(index, index + 1))
                if extractor is None:
                    (time_ms,) = self._valid([batch.timestamps_ms[index]])
                key = None if key_bytes is None else source.key.deserialize(key_bytes)
                if self._skips_empty:
                    value_bytes = value_bytes or None
                value = None if value_bytes is None else source.value.deserialize(value_bytes)
                headers = NO_HEADERS if batch.headers is None else batch.headers[index]
                if extractor is not None and value is None and self._skips_null:
                    time_ms = -1  # its time is unknown, so it is dropped before its turn
                elif extractor is not None:
                    time_ms = self._extracted(extractor, key, value, headers, number, index)
                    (time_ms,) = self._limited([time_ms])
            except StreamsError:
                raise
            except Exception as error:
                if good:
                    yield columns
                    good, all_headers = [], []
                    columns = Columns(number, good, [], [], [], all_headers)
                context.number, context.index = number, index
                self._unreadable(error)
                continue
            if time_ms < 0:
                context.drop()
                continue
            self.newest_ms = max(self.newest_ms, time_ms)
            good.append(index)
            columns.keys.append(key)
            columns.values.append(value)
            columns.timestamps_ms.append(time_ms)
            all_headers.append(headers)
        if good:
            yield columns

    def _resends_in(self, number: int, indices: range) -> list[tuple[int, Header]]:
        """The records that are sent again, with their headers."""
        all_headers = self._context.batches[number].headers
        if all_headers is None or self._resends is None:
            return []
        found = ((index, header_of(all_headers[index])) for index in indices if all_headers[index])
        return [(index, header) for index, header in found if header is not None]

    def _sent_again(self, number: int, index: int, header: Header) -> Iterator[Columns]:
        """Takes a record that failed and is sent again; its predecessors have been processed."""
        context = self._context
        context.number, context.index = number, index
        assert self._resends is not None
        try:
            entry = self._resends.entry(self._source, context.coordinates, header[1])
        except ValueError as error:
            return self._unreadable(error)
        if entry is None:
            return context.drop()
        context.sent_again(header)
        for columns in self._decode_together(context.number, range(1)):
            columns.entry = entry
            yield columns

    def _unreadable(self, error: Exception) -> None:
        handling = error.handling if isinstance(error, TimestampTooFarAhead) else None
        self._context.unreadable(self._source.name, error, handling)

    def _valid(self, timestamps_ms: list[int]) -> list[int]:
        if (oldest_ms := min(timestamps_ms)) < 0:
            raise ValueError(f"the timestamp {oldest_ms} is negative")
        return self._limited(timestamps_ms)

    def _limited(self, timestamps_ms: list[int]) -> list[int]:
        """Raises `TimestampTooFarAhead` if a timestamp is, unless the limit says `clamp`."""
        if (limit := self._limit) is None:
            return timestamps_ms
        latest = latest_ms(limit, self._context.wall_clock_ms)
        if (newest_ms := max(timestamps_ms)) <= latest:
            return timestamps_ms
        if limit.otherwise != "clamp":
            raise TimestampTooFarAhead(newest_ms, latest, limit.otherwise)
        return [min(each, latest) for each in timestamps_ms]

    def _columns(self, number: int, indices: range) -> Columns:
        batch, part = self._context.batches[number], slice(indices.start, indices.stop)
        values = batch.values[part]
        if self._skips_empty:
            values = [data or None for data in values]
        timestamps_ms = self._valid(batch.timestamps_ms[part])
        read_key, read_value = self._source.key.deserialize, self._source.value.deserialize
        return Columns(
            number,
            indices,
            [None if data is None else read_key(data) for data in batch.keys[part]],
            [None if data is None else read_value(data) for data in values],
            timestamps_ms,
            repeat(NO_HEADERS) if batch.headers is None else batch.headers[part],
        )

    def _require_wanted(self, number: int, indices: range) -> None:
        """Raises `SetAsideError` if one of the records was set aside."""
        if self._set_aside and not self._set_aside.isdisjoint(
            self._context.batches[number].offsets[indices.start : indices.stop]
        ):
            raise SetAsideError("this record is set aside by its coordinates (`deltaworks set-aside`)")

    def _extracted(
        self, extractor: TimestampExtractor, key: Any, value: Any, headers: Headers, number: int, index: int
    ) -> int:
        batch = self._context.batches[number]
        timestamp_ms, offset = batch.timestamps_ms[index], batch.offsets[index]
        record = ConsumedRecord(
            key, value, timestamp_ms, headers, batch.topic, batch.partition, offset, self._context.wall_clock_ms
        )
        try:
            time_ms: Any = extractor(record, self.newest_ms)
            if not isinstance(time_ms, int):
                kind = "None" if time_ms is None else f"one {type(time_ms).__name__}"
                raise TypeError(f"it returned {kind}, not a timestamp in milliseconds")
            return int(time_ms)
        except StreamsError:
            raise
        except Exception as error:
            position = RecordPosition(
                self._source.name,
                batch.topic,
                batch.partition,
                offset,
                timestamp_ms,
                None if self._source.origin is None else str(self._source.origin),
            )
            raise StreamsError(
                f"a timestamp extractor failed: {type(error).__name__}: {error}",
                position=position,
                hint="an extractor has to answer for every record; a negative timestamp drops it",
            ) from error


def run(partitions: Sequence[Partition], context: TaskContext) -> None:
    """Processes all available records.

    Args:
        partitions: Sorted by topic and partition.
    """
    if len(partitions) == 1:
        _run_one(partitions[0], context)
    else:
        _run_merged(partitions, context)


def _run_one(partition: Partition, context: TaskContext) -> None:
    for columns in partition.chunks():
        context.number, process = columns.number, columns.entry or partition.entry
        rows = zip(columns.indices, columns.keys, columns.values, columns.timestamps_ms, columns.headers, strict=False)
        for context.index, key, value, timestamp_ms, headers in rows:
            process(key, value, timestamp_ms, headers)


_Row = tuple[Process, int, int, Any, Any, int, Headers]
"""`(entry, batch number, index, key, value, timestamp_ms, headers)`"""


class _Run:
    """One partition in a merge: the available rows and their ranks, which never decrease."""

    def __init__(self, partition: Partition, position: int, count: int) -> None:
        self.rows: list[_Row] = []
        self.ranks: list[int] = []
        """Largest timestamp so far, then position among the partitions, as one number."""
        self.exhausted = False
        self._partition = partition
        self._chunks = partition.chunks()
        self._position = position
        self._count = count
        self._highest_ms = -1

    def refill(self) -> None:
        columns = next(self._chunks, None)
        if columns is None:
            self.exhausted = True
            return
        highest = list(accumulate(chain((self._highest_ms,), columns.timestamps_ms), max))[1:]
        self._highest_ms = highest[-1]
        self.ranks = [time_ms * self._count + self._position for time_ms in highest]
        self.rows = list(
            zip(
                repeat(columns.entry or self._partition.entry),
                repeat(columns.number),
                columns.indices,
                columns.keys,
                columns.values,
                columns.timestamps_ms,
                columns.headers,
                strict=False,
            )
        )

    def take(self, last_rank: int | None, rows: list[_Row], ranks: list[int]) -> None:
        """Moves the rows up to a rank to the end of `rows`."""
        count = len(self.rows) if last_rank is None else bisect_right(self.ranks, last_rank)
        rows += self.rows[:count]
        ranks += self.ranks[:count]
        del self.rows[:count], self.ranks[:count]


def _run_merged(partitions: Sequence[Partition], context: TaskContext) -> None:
    runs = [_Run(partition, position, len(partitions)) for position, partition in enumerate(partitions)]
    while True:
        for each in runs:
            if not each.rows and not each.exhausted:
                each.refill()
        last_rank = min((each.ranks[-1] for each in runs if not each.exhausted), default=None)
        rows: list[_Row] = []
        ranks: list[int] = []
        for each in runs:
            each.take(last_rank, rows, ranks)
        if not rows:
            return
        for position in sorted(range(len(rows)), key=ranks.__getitem__):
            process, context.number, context.index, key, value, timestamp_ms, headers = rows[position]
            process(key, value, timestamp_ms, headers)
