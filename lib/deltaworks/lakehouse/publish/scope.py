"""The rows of a table that a replay stands for: a publish replaces them, and a comparison compares them.

| table | rows |
|---|---|
| windowed | windows that start in the time range (whole UTC days) |
| append, dead letters | rows in the time range that the replay's batches have written |
| changelog | rows of the batches up to the last one of the replay, whatever their time |
| snapshot | its changelog, reduced; the time range does not matter |
| archive | none: it holds what a replay reads, not what comes of it |

A file says which batch wrote each row of an append-only table (`origins`), so a result of a later batch stays even if
its record is earlier. If a file does not say it, a row counts as written by the batch that read its record: the
record's offset must lie below the end of its topic and partition, or, behind an exchange, it names the batch
(`kernel/exchanges.py`). A row that no record has caused (`source_offset` is -1) then stays as it is.

This module uses only the rows themselves; callers that read files apply `origins` (`replacement`, `comparison`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.lakehouse import layout
from deltaworks.lakehouse.columns import TIMESTAMP
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.topology.columns import LAST_MS

_BATCH_SHIFT = 32
ROW_SOURCE = ("source_topic", "source_partition", "source_offset")
LETTER_SOURCE = ("topic", "partition", "offset")
"""The columns that say where a record was read: for rows, and for dead letters."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay has read, and the time range that it is asked for."""

    from_ms: int | None = None
    """Start of the first UTC day; None: from the beginning."""
    to_ms: int | None = None
    """End of the last UTC day, exclusive; None: to the end."""
    end_offsets: Mapping[str, Mapping[str, int]]
    """`{source topic: {partition: next offset}}` after the last batch. A topic that is not here is an exchange."""
    last_batch: int

    def condition(self, schema: TableSchema) -> str:
        """The rows as an SQL condition (DuckDB) on the table's columns; never NULL for our own rows."""
        match schema.role:
            case Role.WINDOWED:
                return self.time_condition("window_start")
            case Role.APPEND:
                return f"{self.time_condition('timestamp')} AND {self._source_condition(*ROW_SOURCE)}"
            case Role.DEAD_LETTERS:
                return f"{self.time_condition('timestamp')} AND {self._source_condition(*LETTER_SOURCE)}"
            case Role.CHANGELOG | Role.SNAPSHOT:
                return f"batch_id <= {self.last_batch}"
            case Role.ARCHIVE:
                return "FALSE"
            case _:
                assert_never(schema.role)

    def mask(self, schema: TableSchema, rows: pa.Table) -> pa.ChunkedArray:
        """A boolean per row; no nulls."""
        match schema.role:
            case Role.WINDOWED:
                found = self._time_mask(rows["window_start"])
            case Role.APPEND:
                found = pc.and_(self._time_mask(rows["timestamp"]), self._source_mask(*map(rows.column, ROW_SOURCE)))
            case Role.DEAD_LETTERS:
                read = self._source_mask(*map(rows.column, LETTER_SOURCE))
                found = pc.and_(self._time_mask(rows["timestamp"]), read)
            case Role.CHANGELOG | Role.SNAPSHOT:
                found = pc.less_equal(rows["batch_id"], self.last_batch)
            case Role.ARCHIVE:
                found = pa.repeat(False, rows.num_rows)
            case _:
                assert_never(schema.role)
        return pc.fill_null(found, False)

    def is_in_time(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """A boolean per timestamp; no nulls."""
        return self._time_mask(times)

    def time_condition(self, column: str) -> str:
        """The time range as an SQL condition on a column."""
        parts = [f"{column} {sign} TIMESTAMPTZ '{layout.utc(bound)}'" for sign, bound in self._time_bounds()]
        return " AND ".join(parts) or "TRUE"

    def is_source(self, topic: str) -> str:
        """Whether a column names a source topic rather than an exchange, as an SQL condition."""
        return f'"{topic}" IN ({", ".join(map(_text, self.end_offsets))})' if self.end_offsets else "FALSE"

    @property
    def days(self) -> tuple[str | None, str | None]:
        """The first UTC date and the one after the last, as in `window_date=`; None: no bound."""
        return (
            None if self.from_ms is None else layout.window_day(self.from_ms),
            None if self.to_ms is None or self.to_ms > LAST_MS else layout.window_day(self.to_ms),
        )

    def holds_day(self, day: str) -> bool:
        """Whether a partition of a windowed table is in the scope."""
        first, end = self.days
        return (first is None or first <= day) and (end is None or day < end)

    @property
    def _exchange_end(self) -> int:
        return (self.last_batch + 1) << _BATCH_SHIFT

    def _time_mask(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        found = pc.is_valid(times)
        for sign, bound in self._time_bounds():
            compare = pc.greater_equal if sign == ">=" else pc.less
            found = pc.and_(found, compare(times, pa.scalar(bound * 1000, pa.int64()).cast(TIMESTAMP)))
        return found

    def _time_bounds(self) -> Iterable[tuple[str, int]]:
        if self.from_ms is not None:
            yield ">=", min(self.from_ms, LAST_MS)
        if self.to_ms is not None and self.to_ms <= LAST_MS:
            yield "<", self.to_ms

    def _source_condition(self, topic: str, partition: str, offset: str) -> str:
        topic, partition, offset = (f'"{column}"' for column in (topic, partition, offset))  # `offset` is a keyword
        cases = []
        for name, ends in self.end_offsets.items():
            below = " OR ".join(f"{partition} = {int(number)} AND {offset} < {end}" for number, end in ends.items())
            cases.append(f"WHEN {topic} = {_text(name)} THEN {offset} >= 0 AND ({below or 'FALSE'})")
        behind_an_exchange = f"{offset} >= 0 AND {offset} < {self._exchange_end}"
        return f"(CASE {' '.join(cases)} ELSE {behind_an_exchange} END)" if cases else f"({behind_an_exchange})"

    def _source_mask(
        self, topics: pa.ChunkedArray, partitions: pa.ChunkedArray, offsets: pa.ChunkedArray
    ) -> pa.ChunkedArray:
        named = pc.is_in(topics, pa.array(list(self.end_offsets), pa.string()))
        read = pc.and_(pc.invert(named), pc.less(offsets, self._exchange_end))
        for name, ends in self.end_offsets.items():
            of_topic = pc.equal(topics, name)
            for number, end in ends.items():
                here = pc.and_(of_topic, pc.equal(partitions, int(number)))
                read = pc.or_(read, pc.and_(here, pc.less(offsets, end)))
        return pc.and_(read, pc.greater_equal(offsets, 0))


def open_days(paths: Iterable[str]) -> set[str]:
    """The dates of a windowed table with windows that may still change; takes its files as in the log."""
    return {layout.partition_of(path)["window_date"] for path in paths if layout.is_page(path)}


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
