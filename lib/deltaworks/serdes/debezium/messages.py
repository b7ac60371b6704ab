"""What a record of Debezium is: a change of a row, a row that a transformation has taken out of it, or neither.

Each record says it by itself, so that a topic may go from one to the other. A change has an `op` and a `source`, which
is an object that names its connector; a column of a row is never such an object.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from deltaworks.serdes.debezium.columns import Column, column_of

Bytes = msgspec.Raw | bytes


class Change(msgspec.Struct, frozen=True):
    """A change with `before` and `after`, still as JSON."""

    op: str
    before: Bytes | None
    after: Bytes | None
    source: Bytes
    transaction: Bytes | None
    column: Column | None
    """The schema of `before` and `after`; None: the record has none."""


class Row(msgspec.Struct, frozen=True):
    """A row without `before`, still as JSON; what is known of the change is in fields that begin with `__`."""

    data: Bytes
    is_deleted: bool
    op: str | None
    column: Column | None


class NotARow(ValueError):
    """A message that Debezium writes beside those of rows."""


class _Head(msgspec.Struct):
    schema: msgspec.Raw | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET
    before: msgspec.Raw | UnsetType = UNSET
    after: msgspec.Raw | UnsetType = UNSET
    source: msgspec.Raw | UnsetType = UNSET
    transaction: msgspec.Raw | UnsetType = UNSET
    op: msgspec.Raw | UnsetType = UNSET
    ddl: msgspec.Raw | UnsetType = UNSET
    status: msgspec.Raw | UnsetType = UNSET
    event_count: msgspec.Raw | UnsetType = UNSET
    data_collections: msgspec.Raw | UnsetType = UNSET
    deleted: msgspec.Raw | UnsetType = msgspec.field(default=UNSET, name="__deleted")
    row_op: msgspec.Raw | UnsetType = msgspec.field(default=UNSET, name="__op")


_read_head = msgspec.json.Decoder(_Head).decode
_read_text = msgspec.json.Decoder(str).decode
_HEARTBEAT = re.compile(rb'\{\s*"ts_ms"\s*:\s*\d+\s*\}')
_SHORT = 64
"""Bytes; no heartbeat has more."""
_NULL = b"null"


def message_of(data: Bytes) -> Change | Row | None:
    """What a record is; None: a null with a schema.

    Raises:
        NotARow: it is a heartbeat, a border of a transaction, a change of a table's columns or a logical message.
        msgspec.MsgspecError: it is no JSON object.
    """
    head, column = _read_head(data), None
    if _is_object(head.schema) and head.payload is not UNSET:
        column, data = column_of(bytes(head.schema)), head.payload  # type: ignore[arg-type]
        if bytes(data) == _NULL:
            return None
        head = _read_head(data)
    if _is_object(head.source) and b'"connector"' in bytes(head.source):  # type: ignore[arg-type]
        return _change(head, column)
    _require_row(head, data, column)
    deleted = head.deleted is not UNSET and bytes(head.deleted) in (b'"true"', b"true")
    op = None if head.row_op is UNSET or bytes(head.row_op) == _NULL else _read_text(head.row_op)
    return Row(data, deleted or op == "d", op, column)


def _change(head: _Head, column: Column | None) -> Change:
    if head.ddl is not UNSET:
        raise NotARow("a change of a table's columns, of the connector's topic for them")
    if head.op is UNSET:
        raise NotARow("a message with a source and without an operation")
    op = _read_text(head.op)
    if op == "m":
        raise NotARow("a logical message (op=m), which belongs to no table")
    assert head.source is not UNSET
    before, after = _unless_null(head.before), _unless_null(head.after)
    if after is not None and bytes(after)[:1] == b'"':
        raise NotARow("a change of MongoDB, whose documents are texts; let ExtractNewDocumentState unwrap them")
    inside = None if column is None else column.parts.get("after")
    return Change(op, before, after, head.source, _unless_null(head.transaction), inside)


def _require_row(head: _Head, data: Bytes, column: Column | None) -> None:
    name = (column.name if column else None) or ""
    if name.endswith("Heartbeat") or (len(bytes(data)) < _SHORT and _HEARTBEAT.fullmatch(bytes(data))):
        raise NotARow("a heartbeat, of the connector's topic for them")
    begins_or_ends = head.status is not UNSET and head.event_count is not UNSET and head.data_collections is not UNSET
    if name.endswith(("TransactionMetadataValue", "TransactionMetadata")) or begins_or_ends:
        raise NotARow("the border of a transaction, of the connector's topic for them")


def _is_object(part: Any) -> bool:
    return part is not UNSET and bytes(part)[:1] == b"{"


def _unless_null(part: msgspec.Raw | UnsetType) -> Bytes | None:
    return None if part is UNSET or bytes(part) == _NULL else part
