"""Records sorted by time, in one file per topic-partition, which a reader reads by position."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaworks.files import link, local_side, opened
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.names import TOPIC
from deltaworks.object_path import ObjectPath
from deltaworks.runtime.global_tables import Reader

GROUP_ROWS = 5_000
"""Rows of a file that are read at once."""

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)


def sorted_files(folder: Path) -> Mapping[tuple[str, int], Path]:
    """The file of each topic-partition that has records."""
    return {(path.parent.name, int(path.stem)): path for path in sorted(folder.glob("*/*.parquet"))}


def read_rows(reader: Reader, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as rows."""
    for portion in reader.read([wanted]):
        for batch in portion:
            count = len(batch.offsets)
            headers = batch.headers_of_each
            yield pa.record_batch(
                [
                    pa.repeat(pa.scalar(batch.topic, pa.string()), count),
                    pa.repeat(pa.scalar(batch.partition, pa.int32()), count),
                    pa.array(batch.timestamps_ms, pa.int64()),
                    pa.array(batch.offsets, pa.int64()),
                    pa.array(batch.keys, pa.binary()),
                    pa.array(batch.values, pa.binary()),
                    pa.array([[{"name": n, "value": v} for n, v in each] for each in headers], _HEADERS),
                ],
                schema=SCHEMA,
            )


def write_sorted(folder: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Writes records that arrive in order: topic-partition after topic-partition, each by time and offset.

    Args:
        folder: for the files; a file is complete when it appears.
        batches: any number of rows each.

    Yields:
        The number of rows of each file.
    """
    writer: _Writer | None = None
    for batch in batches:
        for part, rows in _by_part(pa.Table.from_batches([batch])):
            if writer is None or writer.part != part:
                if writer is not None:
                    yield writer.close()
                writer = _Writer(folder, part)
            writer.add(rows)
    if writer is not None:
        yield writer.close()


class _Writer:
    """One file."""

    def __init__(self, folder: Path, part: tuple[str, int]) -> None:
        self.part = part
        topic, partition = part
        self._path = folder / TOPIC.checked(topic, folder) / f"{partition}.parquet"
        self._temporary = local_side(self._path).with_name(f".{partition}-{os.getpid()}")
        self._temporary.parent.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([field for field in SCHEMA if field.name not in ("topic", "partition")])
        self._names = schema.names
        self._writer = pq.ParquetWriter(self._temporary, schema, compression="zstd", use_dictionary=False)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows.select(self._names))
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= GROUP_ROWS:
            self._flush()

    def close(self) -> int:
        self._flush()
        self._writer.close()
        if isinstance(self._path, ObjectPath):
            link(self._temporary, self._path)
            self._temporary.unlink()
        else:
            self._temporary.replace(self._path)
        return self._rows

    def _flush(self) -> None:
        if self._waiting_rows:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP_ROWS)
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows = [], 0


class SortedFile:
    """The records of one topic-partition by time; keeps the group of rows that was read last."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(opened(path) if isinstance(path, ObjectPath) else path)
        metadata = self._file.metadata
        self._starts = [0]
        for group in range(metadata.num_row_groups):
            self._starts.append(self._starts[-1] + metadata.row_group(group).num_rows)
        self._at_hand: tuple[int, pa.Table] | None = None

    @property
    def count(self) -> int:
        return self._starts[-1]

    @property
    def newest_ms(self) -> int:
        """The time of the last record."""
        return self._newest_ms(len(self._starts) - 2)

    def samples(self, every: int) -> Iterator[int]:
        """The time of each `every`th record."""
        for group, start in enumerate(self._starts[:-1]):
            times = self._times(group)
            for position in range(-start % every, len(times), every):
                yield times[position].as_py()

    def positions(self, borders_ms: Sequence[int]) -> list[int]:
        """How many records are before each of these ascending times."""
        found: list[int] = []
        for group, start in enumerate(self._starts[:-1]):
            here = bisect_right(borders_ms, self._newest_ms(group))
            if len(found) < here:
                times = self._times(group).to_pylist()
                found += [start + bisect_left(times, border_ms) for border_ms in borders_ms[len(found) : here]]
        return [*found, *[self.count] * (len(borders_ms) - len(found))]

    def rows(self, start: int, stop: int) -> Iterator[pa.Table]:
        """The records at these positions."""
        group = max(0, bisect_left(self._starts, start + 1) - 1)
        while start < stop:
            rows = self._group(group)
            begin, end = start - self._starts[group], min(stop, self._starts[group + 1]) - self._starts[group]
            yield rows.slice(begin, end - begin)
            start, group = self._starts[group] + end, group + 1

    def close(self) -> None:
        self._file.close(force=True)

    def _group(self, group: int) -> pa.Table:
        if self._at_hand is None or self._at_hand[0] != group:
            self._at_hand = group, self._file.read_row_group(group, use_threads=False)
        return self._at_hand[1]

    def _newest_ms(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).column(0).statistics.max)

    def _times(self, group: int) -> pa.Array:
        column = self._file.read_row_group(group, ["timestamp_ms"], use_threads=False)["timestamp_ms"]
        return column.combine_chunks()


class ByTimeReader:
    """`Reader` of sorted files: the offsets of a `Range` are positions in a file; records keep their own offsets.

    The ranges of a task's steps follow each other, so a file is read once.
    """

    def __init__(self, folder: Path, history: Callable[[], Reader]) -> None:
        self._paths, self._connect = sorted_files(folder), history
        self._files: dict[tuple[str, int], SortedFile] = {}
        self._history: Reader | None = None

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        """The records at the positions: one range in portions, several at once.

        Raises:
            KafkaReadError: the topic was not sorted.
        """
        wanted = [each for each in ranges if each.stop > each.start]
        if wanted and (wanted[0].topic, wanted[0].partition) not in self._paths:
            yield from self._unsorted().read(list(wanted))
        elif len(wanted) == 1:
            yield from ([batch] for batch in self._records(wanted[0]))
        elif wanted:
            yield [batch for each in wanted for batch in self._records(each)]

    def beginning(self, topic: str, partition: int) -> int:
        return 0 if (topic, partition) in self._paths else self._unsorted().beginning(topic, partition)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        if self._history is not None:
            self._history.close()

    def _records(self, wanted: Range) -> Iterator[RecordBatch]:
        part = wanted.topic, wanted.partition
        if part not in self._files:
            self._files[part] = SortedFile(self._paths[part])
        for rows in self._files[part].rows(wanted.start, wanted.stop):
            yield RecordBatch(
                *part,
                rows["offset"].to_pylist(),
                rows["timestamp_ms"].to_pylist(),
                rows["key"].to_pylist(),
                rows["value"].to_pylist(),
                _headers(rows["headers"]),
            )

    def _unsorted(self) -> Reader:
        if self._history is None:
            self._history = self._connect()
        return self._history


def _by_part(rows: pa.Table) -> Iterator[tuple[tuple[str, int], pa.Table]]:
    """The rows of each topic-partition, which are adjacent."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for part in zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True):
        counts[part] += 1
    start = 0
    for part, count in counts.items():
        yield part, rows.slice(start, count)
        start += count


def _headers(column: pa.ChunkedArray) -> list[Headers] | None:
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return None
    return [tuple((each["name"], each["value"]) for each in cell) for cell in column.to_pylist()]
