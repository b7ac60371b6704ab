"""Classes that are made of a schema while a program runs, for who has no type of its own.

Such a class travels to executors as what it is made of: it is an attribute of this module, whose name says that.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import keyword
import uuid
import zlib
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

import msgspec

from deltaworks.serdes.avro.nodes import parsed
from deltaworks.serdes.avro.to_shape import shape_from as shape_of_avro
from deltaworks.serdes.protobuf.descriptors import descriptors
from deltaworks.serdes.protobuf.to_shape import shape_from as shape_of_message
from deltaworks.serdes.schemas import Kind
from deltaworks.serdes.shapes import Again, Basic, Choice, Entries, Many, Number, OneOf, Part, Record, Shape


def made_of(kind: Kind, schema: str, message: str | None = None) -> Any:
    """The type of a schema: the same one each time.

    Args:
        kind: `AVRO` or `PROTOBUF`.
        schema: its text; of Protobuf, a set of descriptors in base64.
        message: of Protobuf, the full name.

    Raises:
        TypeError: a record contains itself, or Python has no type for a field.
    """
    said = json.dumps([kind, schema, message]).encode()
    return _made(base64.urlsafe_b64encode(zlib.compress(said)).decode())[0]


def __getattr__(name: str) -> Any:
    token, _, record = name.partition(":")
    if not record:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _made(token)[1][record]


@lru_cache(maxsize=1000)
def _made(token: str) -> tuple[Any, dict[str, Any]]:
    """The type that a token says, and all classes in it by their names."""
    kind, schema, message = json.loads(zlib.decompress(base64.urlsafe_b64decode(token)))
    made = _Making(token)
    return made.type(_shape(kind, schema, message)), made.classes


def _shape(kind: Kind, schema: str, message: str | None) -> Shape:
    if kind == "AVRO":
        return shape_of_avro(parsed(schema))
    found = descriptors(base64.b64decode(schema), message)
    return shape_of_message(found.descriptor)


_BASIC: dict[Basic, Any] = {
    Basic.TEXT: str,
    Basic.INTEGER: int,
    Basic.FLOAT: float,
    Basic.BOOLEAN: bool,
    Basic.BINARY: bytes,
    Basic.INSTANT: dt.datetime,
    Basic.LOCAL: Annotated[dt.datetime, msgspec.Meta(tz=False)],
    Basic.DATE: dt.date,
    Basic.TIME: dt.time,
    Basic.DURATION: dt.timedelta,
    Basic.UUID: uuid.UUID,
    Basic.ANYTHING: Any,
    Basic.NOTHING: None,
}


class _Making:
    """The classes of one schema."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.classes: dict[str, Any] = {}

    def type(self, shape: Shape) -> Any:
        """The Python type of a shape; a Struct is made for each record, and a `Literal` for each enum."""
        match shape:
            case Basic():
                return _BASIC[shape]
            case Number(digits):
                return Decimal if digits is None else Annotated[Decimal, digits]
            case Choice(values):
                return Literal[values]
            case Many(item):
                return list[self.type(item)]  # type: ignore[misc]
            case Entries(value, key):
                return dict[self.type(key), self.type(value)]  # type: ignore[misc]
            case OneOf(members):
                return Union[tuple(self.type(each) for each in members)]  # noqa: UP007
            case Record():
                return self._struct(shape)
            case Again(name):
                raise TypeError(f"'{name}' contains itself; write a Struct for it, or let one be generated")

    def _struct(self, record: Record) -> Any:
        name = python_name(record.name)
        if name in self.classes:
            return self.classes[name]
        names = {python_name(each.name): each.written for each in record.parts}
        made: Any = msgspec.defstruct(
            name,
            [self._field(each) for each in record.parts],
            frozen=True,
            kw_only=True,
            tag=True if record.tagged else None,
            rename={name: written for name, written in names.items() if name != written} or None,
            module=__name__,
        )
        made.__qualname__ = f"{self._token}:{name}"
        self.classes[name] = made
        return made

    def _field(self, part: Part) -> Any:
        name, kind = python_name(part.name), self.type(part.shape)
        if part.default is None:
            return name, kind
        value = part.default()
        return name, kind, msgspec.field(default_factory=part.default) if isinstance(value, list | dict) else value


def python_name(name: str) -> str:
    """A name of a schema as Python can have it.

    >>> python_name("class"), python_name("order-id")
    ('class_', 'order_id')
    """
    found = "".join(each if each.isalnum() or each == "_" else "_" for each in name)
    found = f"_{found}" if not found[:1].isalpha() and found[:1] != "_" else found
    return f"{found}_" if keyword.iskeyword(found) else found
