"""A change of a row, with what its source says of it."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")

Op = Literal["r", "c", "u", "d", "t"]


class RowChange(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One change of a row, as Debezium has read it; `DebeziumChanges` makes it.

    Where records are rows, not changes with `before` and `after`, fields are known only if the connector adds them to
    rows (`add.fields`, such as `op,source.ts_ms,source.lsn`).
    """

    op: Op | None
    """`r`: read by a snapshot; `c`: created; `u`: updated; `d`: deleted; `t`: the table was truncated. None: a row that
    does not say it."""
    before: T | None = None
    """The row before; None: there was none, or it is not known to be whole (`whole_before`)."""
    after: T | None = None
    """The row after; None: it is deleted."""
    source_ms: int | None = None
    """When the database made the change, in milliseconds since 1970."""
    snapshot: bool = False
    """Whether a snapshot has read it."""
    connector: str | None = None
    """Such as `postgresql`."""
    database: str | None = None
    """The database of the table."""
    schema: str | None = None
    """The schema of the table, if the database has schemas."""
    table: str | None = None
    """The table."""
    lsn: int | None = None
    """Position in the log of PostgreSQL."""
    file: str | None = None
    """Binary log of MariaDB or MySQL."""
    pos: int | None = None
    """Position in it."""
    gtid: str | None = None
    """Transaction of MariaDB or MySQL."""
    tx_id: str | None = None
    """Transaction of PostgreSQL."""


class _Source(msgspec.Struct):
    connector: str | None = None
    ts_ms: int | None = None
    snapshot: str | bool | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    lsn: Any = None
    file: str | None = None
    pos: int | None = None
    gtid: str | None = None
    txId: Any = None


_FIELDS = _Source.__struct_fields__
_Added: Any = msgspec.defstruct(
    "_Added",
    [(f"{place}{name}", Any, None) for place in ("source_", "") for name in _FIELDS],
    rename=lambda name: f"__{name}",
    module=__name__,
)
"""The fields that ExtractNewRecordState adds: `__source_lsn` for `source.lsn`, `__lsn` for `lsn`."""
_read_source = msgspec.json.Decoder(_Source).decode
_read_added = msgspec.json.Decoder(_Added).decode


def of_source(source: msgspec.Raw | bytes) -> dict[str, Any]:
    """The fields of a `RowChange` that the source of a change says."""
    return _fields(_read_source(source))


def of_added(row: msgspec.Raw | bytes) -> dict[str, Any]:
    """The same of what was added to a row."""
    found = _read_added(row)
    # `__ts_ms` is when the connector processed the change, so it is no time of the source.
    some = {each: getattr(found, f"source_{each}") for each in _FIELDS}
    some |= {each: getattr(found, each) for each in _FIELDS if some[each] is None and each != "ts_ms"}
    return _fields(msgspec.convert(some, _Source))


def source_of(change: RowChange[Any]) -> dict[str, Any]:
    """What `of_source` reads."""
    return {
        "connector": change.connector,
        "ts_ms": change.source_ms,
        "snapshot": "true" if change.snapshot else "false",
        "db": change.database,
        "schema": change.schema,
        "table": change.table,
        "lsn": change.lsn,
        "file": change.file,
        "pos": change.pos,
        "gtid": change.gtid,
        "txId": change.tx_id,
    }


def _fields(source: _Source) -> dict[str, Any]:
    return {
        "source_ms": source.ts_ms,
        "snapshot": source.snapshot not in (None, False, "false"),
        "connector": source.connector,
        "database": source.db,
        "schema": source.schema,
        "table": source.table,
        "lsn": source.lsn if isinstance(source.lsn, int) else None,
        "file": source.file,
        "pos": source.pos,
        "gtid": source.gtid,
        "tx_id": None if source.txId is None else str(source.txId),
    }
