"""What a task tells the driver about the files it wrote; small, and sent as bytes."""

from __future__ import annotations

import msgspec


class NewFile(msgspec.Struct, frozen=True, array_like=True):
    """A Parquet file in a table's folder, not yet part of the table."""

    path: str
    """Path relative to the table, such as `window_date=2026-01-01/open-....parquet`."""
    size_bytes: int
    rows: int
    statistics: str
    """Delta's statistics as JSON."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Offsets of a topic-partition that a batch has read: `start <= offset < stop`."""

    topic: str
    partition: int
    start: int
    stop: int


class TableWrite(msgspec.Struct, frozen=True, array_like=True):
    """The writes of one task to one table in one batch."""

    table: str
    task: int
    added: tuple[NewFile, ...]
    removed: tuple[str, ...] = ()
    """Paths of pages that `added` replaces."""
    closed_before_ms: int | None = None
    """Windowed tables: windows that end before this time are final."""
    changed_rows: int = 0
    """Rows that the batch appended, updated or deleted; pages also hold others."""
    spans: tuple[Span, ...] = ()
    """Archives: the offsets that were read; offsets without a row belong to no record."""


def encode(writes: list[TableWrite]) -> bytes:
    """Msgpack."""
    return msgspec.msgpack.encode(writes)


def decode(data: bytes) -> list[TableWrite]:
    """Inverse of `encode`."""
    return msgspec.msgpack.decode(data, type=list[TableWrite])
