"""Reads archives (`archive`): records by offset, in order, with memory that does not grow with their number.

A record lies in the folder of its date, and late records lie among others, so the files of a partition overlap and are
merged by offset. Readers need no lock. Meanwhile the stream goes on: it merges small files, and later removes the
merged ones. The reader then looks up where the rows are now.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaworks.errors import TableError
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.archive import FIRST_MS, is_of, is_told, spans_of
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import parquet_file
from deltaworks.lakehouse.schema import archive_schema
from deltaworks.topology.archives import Archives
from deltaworks.topology.columns import LAST_MS

CHUNK_ROWS = 2_000
"""Rows of each open file in memory; also the most records of a `RecordBatch`, except for late ones."""

_NO_ROWS = pa.table({"offset": pa.array([], pa.int64())})


class ArchiveReader:
    """The archives of a pipeline.

    Args:
        root: folder of all tables.
        archives: topic -> table; tables that do not exist hold nothing.
        topic_id: gives the id of a topic, as far as it is known. Records of an earlier topic of that name, which was
            deleted, are ignored.
    """

    def __init__(
        self, root: Path, archives: Archives, topic_id: Callable[[str], str | None] = lambda topic: None
    ) -> None:
        self._root, self._archives, self._topic_id = root, archives, topic_id
        self._logs: dict[str, DeltaLog | None] = {}

    def table(self, topic: str) -> str | None:
        """The archive of a topic, whether it exists or not."""
        return self._archives.table(topic)

    def is_of_another(self, topic: str, id: str) -> bool:
        """Whether an archive holds records of a topic of that name that is not known to have this id."""
        table = self.table(topic)
        log = None if table is None else self._open(table)
        if log is None or not any(held == topic for held, _ in spans_of(log.transactions)):
            return False
        return not is_told(log.transactions, topic) or not is_of(log.transactions, topic, id)

    def spans(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """The offsets that it holds: `(start, stop)`, in order, with gaps in between."""
        log = self._log(topic)
        return [] if log is None else spans_of(log.transactions).get((topic, partition), [])

    def is_whole(self, topic: str, ends: Mapping[str, int]) -> bool:
        """Whether it holds all records of a topic.

        Args:
            topic: its name.
            ends: Partition -> the offset after the last record; without partitions, the answer is no.
        """
        return bool(ends) and all(
            any(start == 0 and stop >= end for start, stop in self.spans(topic, int(partition)))
            for partition, end in ends.items()
        )

    def read(self, topic: str, partition: int, start: int, stop: int) -> Iterator[RecordBatch]:
        """The records with offsets from `start` to before `stop`, each once; `spans` says which exist.

        Raises:
            TableError: a file of the table is missing.
        """
        while (log := self._log(topic)) is not None:
            try:
                for rows in _merged(_files(log, topic, partition, start, stop), topic, start, stop):
                    batch = _batch(topic, partition, rows)
                    start = batch.offsets[-1] + 1
                    yield batch
            except FileNotFoundError as error:
                self._require_newer(topic, log.version, error)
            else:
                return

    def first_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset in the archive with a timestamp at or after a time; None: there is none.

        Raises:
            TableError: a file of the table is missing.
        """
        while (log := self._log(topic)) is not None:
            try:
                return _first_at(log, topic, partition, timestamp_ms)
            except FileNotFoundError as error:
                self._require_newer(topic, log.version, error)
        return None

    def refresh(self) -> None:
        """Makes later reads see what has been archived since."""
        self._logs.clear()

    def _require_newer(self, topic: str, version: int, error: FileNotFoundError) -> None:
        """Looks again: the stream may have merged the missing files into others."""
        self.refresh()
        if (log := self._log(topic)) is None or log.version == version:
            raise TableError(
                f"The archive at {self._root / (self.table(topic) or '')} names a file that is missing: {error}",
                hint="only the stream may remove files of a Delta table; restore this one from a backup",
            ) from error

    def _log(self, topic: str) -> DeltaLog | None:
        table = self.table(topic)
        if table is None:
            return None
        if table not in self._logs:
            self._logs[table] = self._open(table)
        log = self._logs[table]
        return log if log is not None and self._is_of_topic(log, topic) else None

    def _is_of_topic(self, log: DeltaLog, topic: str) -> bool:
        if not is_told(log.transactions, topic):
            return True
        id = self._topic_id(topic)
        return id is None or is_of(log.transactions, topic, id)

    def _open(self, table: str) -> DeltaLog | None:
        path = self._root / table
        if not (path / layout.LOG_FOLDER).is_dir():
            return None
        log = DeltaLog(path)
        log.load()
        # Otherwise the table has the name of an archive, but is none.
        return log if log.partition_by == archive_schema(table).partition_by else None


@dataclass(frozen=True)
class _File:
    path: Path
    lowest: int
    highest: int


def _files(log: DeltaLog, topic: str, partition: int, start: int, stop: int) -> list[_File]:
    """The files that may hold records of the range, by their lowest offset."""
    found = []
    for path, entry in log.files.items():
        if layout.partition_of(path)["partition"] != str(partition):
            continue
        statistics: dict[str, Any] = json.loads(entry.statistics or "{}")
        least, most = statistics["minValues"], statistics["maxValues"]
        file = _File(log.path / path, least["offset"], most["offset"])
        if file.lowest < stop and file.highest >= start and least["topic"] <= topic <= most["topic"]:
            found.append(file)
    return sorted(found, key=lambda file: file.lowest)


def _first_at(log: DeltaLog, topic: str, partition: int, timestamp_ms: int) -> int | None:
    """Records lie in the folder of their date, so older folders are skipped."""
    at = datetime.fromtimestamp(min(max(timestamp_ms, FIRST_MS), LAST_MS) / 1000, UTC)
    first: int | None = None
    for file in _files(log, topic, partition, 0, sys.maxsize):
        if first is not None and file.lowest >= first:
            break
        if layout.partition_of(file.path.relative_to(log.path).as_posix())["date"] < at.date().isoformat():
            continue
        with parquet_file(file.path) as opened:
            rows = opened.read(["topic", "offset", "timestamp"], use_threads=False)
        late = rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.greater_equal(rows["timestamp"], pa.scalar(at))))
        found = pc.min(late["offset"]).as_py()
        if found is not None:
            first = found if first is None else min(first, found)
    return first


def _merged(files: Sequence[_File], topic: str, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows in the order of their offsets, each once, although two files may hold the same record.

    That is the case if a checkpoint of the stream was given up: the previous one has read the same records.
    """
    waiting = list(reversed(files))
    open_files: list[_OpenFile] = []
    while waiting or open_files:
        if not open_files:
            open_files.append(_OpenFile(waiting.pop(), topic, start, stop))
        upto = min(file.newest for file in open_files)
        while waiting and waiting[-1].lowest <= upto:
            file = _OpenFile(waiting.pop(), topic, start, stop)
            open_files.append(file)
            upto = min(upto, file.newest)
        taken = [rows for file in open_files if (rows := file.take(upto)).num_rows]
        open_files = [file for file in open_files if not file.exhausted]
        if len(taken) == 1:
            yield taken[0]
        elif taken:
            yield _in_order(pa.concat_tables(taken))


class _OpenFile:
    """A file whose rows are read in chunks."""

    def __init__(self, file: _File, topic: str, start: int, stop: int) -> None:
        self._chunks = _chunks(file.path, topic, start, stop)
        self._end = stop
        self._rows = _NO_ROWS
        self.exhausted = False
        self._refill()

    @property
    def newest(self) -> int:
        """The highest offset in memory."""
        return self._end if self.exhausted else int(self._rows["offset"][-1].as_py())

    def take(self, upto: int) -> pa.Table:
        """The rows in memory up to an offset."""
        count = pc.sum(pc.less_equal(self._rows["offset"], upto)).as_py() or 0
        taken = self._rows.slice(0, count)
        self._rows = self._rows.slice(count)
        if not self._rows.num_rows:
            self._refill()
        return taken

    def _refill(self) -> None:
        found = next(self._chunks, None)
        self.exhausted = found is None
        self._rows = _NO_ROWS if found is None else found


def _chunks(path: Path, topic: str, start: int, stop: int) -> Iterator[pa.Table]:
    """The rows of a range in order; never yields an empty chunk."""

    def wanted(rows: pa.Table) -> pa.Table:
        offsets = rows["offset"]
        inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, stop))
        return rows.filter(pc.and_(inside, pc.equal(rows["topic"], topic)))

    with parquet_file(path) as file:
        if file.metadata.num_rows > CHUNK_ROWS:
            offsets = wanted(file.read(["offset", "topic"], use_threads=False))["offset"].combine_chunks()
            if pc.all(pc.less(offsets[:-1], offsets[1:]), min_count=0).as_py():
                yield from _streamed(file, wanted, len(offsets))
                return
        if (rows := wanted(file.read(use_threads=False))).num_rows:
            yield _in_order(rows)


def _streamed(file: pq.ParquetFile, wanted: Callable[[pa.Table], pa.Table], count: int) -> Iterator[pa.Table]:
    """The wanted rows, `count` in all, of a file that has them in order."""
    for batch in file.iter_batches(CHUNK_ROWS, use_threads=False):
        if not count:
            return
        if (rows := wanted(pa.Table.from_batches([batch]))).num_rows:
            count -= rows.num_rows
            yield rows


def _in_order(rows: pa.Table) -> pa.Table:
    rows = rows.sort_by("offset")
    offsets = rows["offset"].combine_chunks()
    new = pc.not_equal(offsets[1:], offsets[:-1])
    return rows.filter(pa.concat_arrays([pa.array([True]), new]))


def _batch(topic: str, partition: int, rows: pa.Table) -> RecordBatch:
    micros = rows["timestamp"].cast(pa.int64())
    times = pc.coalesce(rows["timestamp_ms"], pc.divide(micros, 1000))
    return RecordBatch(
        topic,
        partition,
        rows["offset"].to_pylist(),
        times.to_pylist(),
        rows["key"].to_pylist(),
        rows["value"].to_pylist(),
        _headers(rows["headers"]),
    )


def _headers(column: pa.ChunkedArray) -> list[Headers] | None:
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return None
    return [tuple((each["name"], each["value"]) for each in cell) for cell in column.to_pylist()]
