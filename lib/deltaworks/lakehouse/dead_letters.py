"""Reads tables of dead letters: what has failed, how often, and with which records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import catalog
from deltaworks.topology.records import Coordinates

if TYPE_CHECKING:
    import duckdb

_COLUMNS = """
    SELECT topic, "partition", "offset", timestamp, key, value, headers, operator, error_class, message, stacktrace
    FROM letters"""
_WITHOUT_RECORDS = """
    SELECT topic, "partition", "offset", timestamp, NULL AS key, NULL AS value, NULL AS headers, operator, error_class,
        message, '' AS stacktrace
    FROM letters"""
_AT_ONCE = 1_000
"""Rows that are taken from DuckDB at a time."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which dead letters are meant; None: any."""

    operator: str | None = None
    """The operator that failed."""
    error: str | None = None
    """A part of the error's class or message, in any case."""
    key: bytes | None = None
    """The key of the record."""
    since: datetime | None = None
    """Timestamps of records from then on."""
    until: datetime | None = None
    """Timestamps of records before that."""

    @classmethod
    def of(
        cls, *, operator: str | None, error: str | None, key: str | None, since: str | None, until: str | None
    ) -> Wanted:
        """As people say it.

        Raises:
            ConfigurationError: a time is none, or none lies between the two.
        """
        begin, end = (None if text is None else catalog.time_of(text) for text in (since, until))
        if begin is not None and end is not None and begin >= end:
            raise ConfigurationError(
                f"The range of times is empty: {since} to {until}.", hint="since is the earlier one"
            )
        return cls(operator=operator, error=error, key=None if key is None else key.encode(), since=begin, until=end)


@dataclass(frozen=True, kw_only=True)
class Failures:
    """The dead letters of one operator with one class of error."""

    operator: str
    error_class: str
    count: int
    first: datetime
    """The earliest timestamp of their records."""
    last: datetime
    example: Coordinates
    """The record with the latest timestamp."""
    message: str
    """Its error."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One dead letter: a record, and what went wrong with it in one operator."""

    record: Coordinates
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    operator: str
    error_class: str
    message: str
    stacktrace: str


def failures(root: Path, table: str, wanted: Wanted) -> list[Failures]:
    """Counts of dead letters per operator and class of error, the most frequent first.

    Args:
        root: folder of all tables.
        table: the table of dead letters; it has none if it does not exist yet.
        wanted: which ones.
    """
    condition, values = _condition(wanted)
    found = _query(
        root,
        table,
        f"""
        SELECT operator, error_class, count(*), min(timestamp), max(timestamp),
            arg_max({{'at': (topic, "partition", "offset"), 'message': message}}, (timestamp, "offset")) AS example
        FROM letters WHERE {condition} GROUP BY ALL ORDER BY 3 DESC, operator, error_class
        """,
        values,
    )
    return [
        Failures(
            operator=operator,
            error_class=error_class,
            count=count,
            first=first,
            last=last,
            example=Coordinates(*example["at"]),
            message=example["message"],
        )
        for operator, error_class, count, first, last, example in found
    ]


def newest(root: Path, table: str, wanted: Wanted, limit: int, *, records: bool = True) -> list[Failure]:
    """Dead letters, those of the latest timestamps first.

    Args:
        root: folder of all tables.
        table: the table of dead letters; it has none if it does not exist yet.
        wanted: which ones.
        limit: how many at most.
        records: with what was in the records, and stack traces; these of all letters are read for it, which is most of
            what the table has.
    """
    condition, values = _condition(wanted)
    ordered = f'WHERE {condition} ORDER BY timestamp DESC, topic, "partition", "offset" DESC LIMIT {limit}'
    return list(map(_failure, _query(root, table, f"{_COLUMNS if records else _WITHOUT_RECORDS} {ordered}", values)))


def of_record(root: Path, table: str, record: Coordinates) -> list[Failure]:
    """All dead letters of a record: one for each operator that failed on it."""
    place = [record.topic, record.partition, record.offset]
    wanted = 'WHERE topic = ? AND "partition" = ? AND "offset" = ? ORDER BY operator'
    return list(map(_failure, _query(root, table, f"{_COLUMNS} {wanted}", place)))


def _condition(wanted: Wanted) -> tuple[str, list[Any]]:
    conditions = {
        "operator = ?": wanted.operator,
        "contains(lower(error_class || ' ' || message), lower(?))": wanted.error,
        "key = ?::BLOB": wanted.key,
        "timestamp >= ?": wanted.since,
        "timestamp < ?": wanted.until,
    }
    given = {text: value for text, value in conditions.items() if value is not None}
    return " AND ".join(given) or "true", list(given.values())


def every(root: Path, table: str, wanted: Wanted) -> Iterator[Failure]:
    """Dead letters partition by partition, in the order of their offsets.

    Args:
        root: folder of all tables.
        table: the table of dead letters; it has none if it does not exist yet.
        wanted: which ones.
    """
    condition, values = _condition(wanted)
    ordered = f'{_COLUMNS} WHERE {condition} ORDER BY topic, "partition", "offset", operator'
    with _results(root, table, ordered, values) as found:
        while found is not None and (rows := found.fetchmany(_AT_ONCE)):
            yield from map(_failure, rows)


def _failure(row: tuple[Any, ...]) -> Failure:
    """A row of `_COLUMNS`."""
    topic, partition, offset, timestamp, key, value, headers, operator, error_class, message, stacktrace = row
    return Failure(
        record=Coordinates(topic, partition, offset),
        timestamp=timestamp,
        key=key,
        value=value,
        headers=tuple((header["name"], header["value"]) for header in headers or ()),
        operator=operator,
        error_class=error_class,
        message=message,
        stacktrace=stacktrace,
    )


def _query(root: Path, table: str, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
    with _results(root, table, query, values) as found:
        return [] if found is None else found.fetchall()


@contextmanager
def _results(root: Path, table: str, query: str, values: list[Any]) -> Iterator[duckdb.DuckDBPyConnection | None]:
    """The results of a query, whose `letters` is the table; None: it does not exist yet."""
    if table not in catalog.table_names(root):
        yield None
        return
    with catalog.duckdb_connection(root, names=[table]) as connection:
        yield connection.execute(f'WITH letters AS (FROM "{table}") {query}', values)
