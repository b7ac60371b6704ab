"""The archive of a topic: every record that the stream has read, as it was in Kafka, in a Delta table.

Tasks write what they read (`ArchiveWriter`), the driver commits it with the rows of the same batch, so a record is in
the archive once, and if and only if the stream has processed it. Which offsets were read is in the table's log, because
rows cannot tell: some offsets are those of transaction markers, and a pipeline may be run without its archive for a
while.

Reading: `archive_reader`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import compress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.lakehouse import layout, page_index, parquet
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.schema import archive_schema
from deltaworks.lakehouse.writes import NewFile, Span, TableWrite
from deltaworks.topology.columns import LAST_MS

FIRST_MS = -62_135_596_800_000
"""The first millisecond of the year 1, before which readers know no timestamps."""
FILE_BYTES = 64 * 1024 * 1024
"""In memory, before compression; a task that has so much at hand writes it before the end of the batch."""

_SPAN = "span"
_TOPIC = "topic-"
_EPOCH = date(1970, 1, 1)
_MS_PER_DAY = 86_400_000
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_Place = tuple[str, int, int]
"""Table, day since 1970, partition."""


class ArchiveWriter:
    """Takes the records that one task reads, batch after batch; like `TaskTables`, its files are those of an attempt.

    Args:
        root: folder of all tables.
        table: topic -> its archive; None: it has none.
        task: number of the task.
        file_bytes: see `FILE_BYTES`.
    """

    def __init__(
        self, root: Path, table: Callable[[str], str | None], *, task: int, file_bytes: int = FILE_BYTES
    ) -> None:
        self._root, self._table, self._task, self._file_bytes = root, table, task, file_bytes
        self._held: dict[str, dict[tuple[str, int], list[tuple[int, int]]]] = {}
        """Per table: what it held when the driver opened it."""
        self.begin(-1)

    def begin(self, batch_id: int) -> None:
        """Starts a batch; what was taken for one that was not finished is forgotten."""
        self._batch_id = batch_id
        self._pending: dict[_Place, list[pa.Table]] = {}
        self._pending_bytes = self._flushes = 0
        self._files: dict[str, list[NewFile]] = {}
        self._spans: dict[str, list[Span]] = {}

    def add(self, batch: RecordBatch) -> None:
        """Records that were read; those that the archive holds already are left out."""
        table = self._table(batch.topic)
        if table is None or not batch.offsets:
            return
        rows, timestamps_ms = _rows(batch), batch.timestamps_ms
        if (new := self._new(table, batch)) is not None:
            rows, timestamps_ms = rows.filter(pa.array(new)), list(compress(timestamps_ms, new))
        for day, part in _by_day(timestamps_ms, rows) if timestamps_ms else ():
            self._pending.setdefault((table, day, batch.partition), []).append(part)
            self._pending_bytes += part.nbytes
        if self._pending_bytes >= self._file_bytes:
            self._flush()

    def has_read(self, span: Span) -> None:
        """All records of these offsets have been added, or are going to be in this batch."""
        if (table := self._table(span.topic)) is not None:
            self._spans.setdefault(table, []).append(span)

    def finish(self) -> list[TableWrite]:
        """Writes what is left; one entry for each archive that grows."""
        self._flush()
        return [
            TableWrite(
                table,
                self._task,
                tuple(files := self._files.get(table, [])),
                changed_rows=sum(file.rows for file in files),
                spans=tuple(spans),
            )
            for table, spans in self._spans.items()
        ]

    def _new(self, table: str, batch: RecordBatch) -> list[bool] | None:
        """Per record, whether the archive lacks it; None: it lacks all.

        It holds what a line of the stream has read that was undone since: the line before reads that once more.
        """
        if table not in self._held:
            self._held[table] = page_index.read_held(page_index.driver_of(self._root / table).control)
        held = self._held[table].get((batch.topic, batch.partition), [])
        if not held or held[-1][1] <= batch.offsets[0]:
            return None
        return [not any(start <= offset < stop for start, stop in held) for offset in batch.offsets]

    def _flush(self) -> None:
        for (table, day, partition), parts in self._pending.items():
            # Merging puts the files of a batch in the order of their names.
            name = layout.part_name(
                f"part-{self._flushes:04d}", self._batch_id, self._task, page_index.driver_of(self._root / table).tag
            )
            path = f"date={_EPOCH + timedelta(days=day)}/partition={partition}/{name}"
            file = parquet.write(self._root, archive_schema(table), path, pa.concat_tables(parts))
            self._files.setdefault(table, []).append(file)
        self._pending, self._pending_bytes = {}, 0
        self._flushes += 1


def grown_spans(held: Mapping[str, int], writes: Iterable[TableWrite]) -> dict[str, int]:
    """What a commit has to say about the offsets that were read.

    Args:
        held: step -> version, of all transactions of the table by the same query.
        writes: of one batch.

    Returns:
        Step -> version. There is one step for each row of batches without a gap in between: it names where the first
        of them began, its version is where the last one ended.
    """
    ends = {}
    for step, stop in held.items():
        if (span := span_of(step, stop)) is not None:
            ends[span.topic, span.partition, stop] = step
    return {
        ends.get((span.topic, span.partition, span.start), f"{_SPAN}-{span.partition}-{span.start}-{span.topic}"): (
            span.stop
        )
        for write in writes
        for span in write.spans
        if span.stop > span.start
    }


def span_of(step: str, stop: int) -> Span | None:
    """Inverse of what `grown_spans` makes; None for any other step."""
    if not step.startswith(f"{_SPAN}-"):
        return None
    _, partition, start, topic = step.split("-", 3)
    return Span(topic, int(partition), int(start), stop)


def spans_of(transactions: Mapping[str, int]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """What an archive holds, by its log: topic and partition -> `(start, stop)`, in order, a gap between each two."""
    spans = [span_of(layout.step_of(app), stop) for app, stop in transactions.items()]
    held: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for span in sorted(filter(None, spans), key=lambda span: (span.topic, span.partition, span.start)):
        mine = held.setdefault((span.topic, span.partition), [])
        if mine and span.start <= mine[-1][1]:
            mine[-1] = mine[-1][0], max(span.stop, mine[-1][1])
        else:
            mine.append((span.start, span.stop))
    return held


def topic_steps(topics: Mapping[str, str]) -> dict[str, int]:
    """What a commit has to say about the topics whose records it holds: step -> version.

    Offsets of a topic that was recreated are those of other records, so an archive holds one topic of each name.

    Args:
        topics: their ids.
    """
    return {f"{_TOPIC}{topic}": _token_of(id) for topic, id in topics.items()}


def is_of(transactions: Mapping[str, int], topic: str, id: str) -> bool:
    """Whether an archive holds records of this topic, and not of another one of its name, as far as its log says."""
    told = {version for app, version in transactions.items() if layout.step_of(app) == f"{_TOPIC}{topic}"}
    return not told or told == {_token_of(id)}


def is_told(transactions: Mapping[str, int], topic: str) -> bool:
    """Whether an archive says of which topic its records are."""
    return any(layout.step_of(app) == f"{_TOPIC}{topic}" for app in transactions)


def _token_of(id: str) -> int:
    """A number of 62 bits, which is what a transaction can hold."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) >> 2


def _rows(batch: RecordBatch) -> pa.Table:
    """Columns of `archive_schema` without those that it is partitioned by."""
    times = pa.array(batch.timestamps_ms, pa.int64())
    shown = pc.min_element_wise(pc.max_element_wise(times, FIRST_MS), LAST_MS)
    odd = pc.not_equal(times, shown)
    count = len(batch.offsets)
    return pa.table(
        {
            "key": pa.array(batch.keys, pa.binary()),
            "value": pa.array(batch.values, pa.binary()),
            "headers": _headers(batch.headers, count),
            "timestamp": pc.multiply(shown, 1000).cast(TIMESTAMP),
            "timestamp_ms": pc.if_else(odd, times, None),
            "topic": pa.repeat(pa.scalar(batch.topic, pa.string()), count),
            "offset": pa.array(batch.offsets, pa.int64()),
        }
    )


def _headers(headers: Sequence[Headers] | None, count: int) -> pa.Array:
    if headers is None:
        return pa.ListArray.from_arrays(pa.array([0] * (count + 1), pa.int32()), pa.array([], _HEADERS.value_type))
    return pa.array([[{"name": name, "value": value} for name, value in each] for each in headers], _HEADERS)


def _by_day(timestamps_ms: Sequence[int], rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each UTC day, in their order."""
    first, last = (_day(timestamp_ms) for timestamp_ms in (min(timestamps_ms), max(timestamps_ms)))
    if first == last:
        yield first, rows
        return
    days = [_day(timestamp_ms) for timestamp_ms in timestamps_ms]
    column = pa.array(days, pa.int32())
    for day in sorted(set(days)):
        yield day, rows.filter(pc.equal(column, day))


def _day(timestamp_ms: int) -> int:
    return min(max(timestamp_ms, FIRST_MS), LAST_MS) // _MS_PER_DAY
