"""Rows of one type: JSON of columns, as Debezium writes them, becomes a Struct or a dataclass."""

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec

from deltaworks.serdes.checked import check_holds, forget_cache
from deltaworks.serdes.conversions import Convert
from deltaworks.serdes.debezium.columns import Column
from deltaworks.serdes.debezium.messages import Bytes
from deltaworks.serdes.debezium.values import Said, conversion, differs_from_json, never_json
from deltaworks.serdes.scalars import ConnectDecimal
from deltaworks.serdes.shapes import Basic, OneOf, Part, Record, shape_of
from deltaworks.serdes.type_names import type_name

T = TypeVar("T")
UNAVAILABLE = "__debezium_unavailable_value"
_SHORT = 16
"""Characters; shorter texts are never stored apart from their row."""
_KNOWN = 200
"""Schemas whose conversions are kept; a table has a few."""


@dataclass(frozen=True)
class _Reading:
    """How rows with one schema are read."""

    conversions: dict[str, Convert]
    as_json: bool
    """JSON of the type reads a row that needs no conversion."""


class Rows(Generic[T]):
    """Reads and writes rows.

    Args:
        kind: a `msgspec.Struct` or a dataclass.
        said: what the author says of numbers and texts.
        unavailable: what Debezium writes in place of a value that the database has not sent.

    Raises:
        TypeError: the type is no row.
    """

    def __init__(self, kind: type[T], said: Said, unavailable: str) -> None:
        check_holds(kind, "JSON")
        shape = shape_of(kind)
        if not isinstance(shape, Record) or (shape.kind is not None and issubclass(shape.kind, tuple)):
            raise TypeError(f"rows are a msgspec.Struct or a dataclass, and {type_name(kind)} is neither")
        self._kind, self._said = kind, said
        self._parts = shape.parts
        self._decode = msgspec.json.Decoder(kind).decode
        self._encode = msgspec.json.Encoder(decimal_format="string", order="deterministic").encode
        self._placeholders, self._marks = _placeholders(unavailable)
        self._readings: dict[Column | None, _Reading] = {None: self._reading(None)}
        forget_cache(kind)

    def row(self, data: Bytes, before: Bytes | None, column: Column | None) -> T:
        """A row.

        Args:
            data: its JSON object.
            before: the row before the change, which may have a value that is not sent again.
            column: its schema, if it has one.

        Raises:
            ValueError: a column does not fit its field, or has not been sent; says which one.
            msgspec.MsgspecError: likewise.
        """
        reading = self._readings.get(column) or self._learn(column)
        left_out = self._has_placeholder(data)
        if reading.as_json and not left_out:
            try:
                return self._decode(data)
            except msgspec.ValidationError:  # a number for a time or a bool; if it is something else, it shows below
                pass
        columns = msgspec.json.decode(data)
        if left_out:
            for part in self._parts:
                if columns.get(part.written) in self._placeholders:
                    columns[part.written] = self._known_before(part, before)
        for name, convert in reading.conversions.items():
            if (value := columns.get(name)) is not None:
                columns[name] = _converted(name, convert, value)
        made: T = msgspec.convert(columns, self._kind)
        return made

    def is_whole(self, data: Bytes) -> bool:
        """Whether a row has all columns that its type must have; PostgreSQL sends only the key of a deleted one."""
        columns = msgspec.json.decode(data)
        return all(
            columns.get(part.written) is not None or (part.written in columns and _takes_none(part))
            for part in self._parts
            if part.default is None
        )

    def written(self, value: T) -> bytes:
        """A row as JSON that `row` reads."""
        if self._said.decimals == "string":
            return self._encode(value)
        return self._encode(_with_scales(msgspec.to_builtins(value, builtin_types=(Decimal,))))

    def _learn(self, column: Column | None) -> _Reading:
        if len(self._readings) > _KNOWN:
            del self._readings[next(each for each in self._readings if each is not None)]
        self._readings[column] = found = self._reading(column)
        return found

    def _reading(self, column: Column | None) -> _Reading:
        inside = {} if column is None else column.parts
        found: dict[str, Convert] = {}
        as_json = True
        for part in self._parts:
            own = inside.get(part.written)
            convert = conversion(part.shape, own, part.written, self._said)
            if convert is not None:
                found[part.written] = convert
            as_json = as_json and not differs_from_json(part.shape, own, self._said)
            as_json = as_json and not never_json(part.shape, self._said)
        return _Reading(found, as_json)

    def _has_placeholder(self, data: Bytes) -> bool:
        content = bytes(data)
        for mark in self._marks:  # noqa: SIM110 (a generator takes longer than the search)
            if mark in content:
                return True
        return False

    def _known_before(self, part: Part, before: Bytes | None) -> Any:
        value = None if before is None else msgspec.json.decode(before).get(part.written)
        if not _may_be_left_out(value) or value in self._placeholders:
            raise ValueError(
                f"field '{part.written}' has not been sent, because the update did not change it; "
                "ALTER TABLE ... REPLICA IDENTITY FULL makes PostgreSQL send it, as `before`"
            )
        return value


def _converted(name: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"field '{name}': {error}") from error


def _may_be_left_out(value: Any) -> bool:
    """Whether a value is one of those that are so long that PostgreSQL leaves them out.

    Anything else says that `before` has only the columns of an index: Debezium fills the others, with a null or, where
    they may not be null, with an empty value.
    """
    return bool(value) and not (isinstance(value, str) and len(value) < _SHORT)


def _takes_none(part: Part) -> bool:
    return isinstance(part.shape, OneOf) and Basic.NOTHING in part.shape.members


def _placeholders(text: str) -> tuple[list[Any], tuple[bytes, ...]]:
    """What stands in place of a value, for each type of a column, and bytes that JSON of each of them has.

    Source: `io.debezium.connector.postgresql.UnchangedToastedPlaceholder`.
    """
    encoded = base64.b64encode(text.encode()).decode()
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    id = str(uuid.UUID(bytes=digest, version=3))
    numbers = list(text.encode())
    values = [text, encoded, [text], [encoded], [id], numbers, {text: text}]
    marks = (msgspec.json.encode(text)[1:-1], encoded.encode(), id.encode(), msgspec.json.encode(numbers)[1:-1])
    return values, marks


def _with_scales(value: Any) -> Any:
    """Decimals as Debezium writes those of columns that have no scale."""
    match value:
        case Decimal():
            exponent = value.as_tuple().exponent
            scale = max(0, -exponent) if isinstance(exponent, int) else 0
            return {"scale": scale, "value": base64.b64encode(ConnectDecimal(scale).serialize(value)).decode()}
        case dict():
            return {name: _with_scales(each) for name, each in value.items()}
        case list():
            return [_with_scales(each) for each in value]
        case _:
            return value
