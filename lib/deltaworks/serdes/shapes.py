"""Python types as data, between the types of an author and the schemas of a format.

Every format is compared with, made from and turned into these shapes, so none of them knows another one.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union

import msgspec

from deltaworks.serdes.decimal_digits import DecimalDigits
from deltaworks.serdes.type_names import type_name


class Basic(Enum):
    """Types that have no parts; the value is how an author writes it."""

    TEXT = "str"
    INTEGER = "int"
    FLOAT = "float"
    BOOLEAN = "bool"
    BINARY = "bytes"
    INSTANT = "datetime"
    LOCAL = "datetime without a time zone"
    DATE = "date"
    TIME = "time"
    DURATION = "timedelta"
    UUID = "UUID"
    ANYTHING = "Any"
    NOTHING = "None"


@dataclass(frozen=True)
class Number:
    """A `Decimal`."""

    digits: DecimalDigits | None = None
    """None: the type does not say."""


@dataclass(frozen=True)
class Choice:
    """One of several texts or integers: a `Literal`, or an enum with such values."""

    values: tuple[str | int, ...]
    kind: type[Enum] | None = None
    """None: a `Literal`."""
    name: str | None = None
    """What a schema calls it."""
    doc: str | None = None


@dataclass(frozen=True)
class Many:
    """A list, tuple or set of one type."""

    item: Shape
    kind: type = list


@dataclass(frozen=True)
class Entries:
    """A dict."""

    value: Shape
    key: Shape = Basic.TEXT


@dataclass(frozen=True)
class OneOf:
    """A union, often with None."""

    members: tuple[Shape, ...]


@dataclass(frozen=True)
class Part:
    """A field of a record."""

    name: str
    """In Python."""
    written: str
    """In bytes and schemas."""
    shape: Shape
    default: Callable[[], Any] | None = field(default=None, compare=False)
    """None: it is required."""
    doc: str | None = None


@dataclass(frozen=True)
class Record:
    """A Struct, dataclass or NamedTuple; or a record of a schema, whose `kind` is None until a class is made of it."""

    name: str
    parts: tuple[Part, ...]
    kind: type | None = None
    doc: str | None = None
    tagged: bool = False
    """It is a member of a union with other records, which a tag tells apart in a store."""


@dataclass(frozen=True)
class Again:
    """A record inside itself."""

    name: str
    kind: type | None = field(default=None, compare=False)


Shape = Basic | Number | Choice | Many | Entries | OneOf | Record | Again


def shape_of(kind: Any) -> Shape:
    """The shape of a Python type.

    Raises:
        TypeError: no format has such a type; says which field it is.
    """
    return _shape(kind, (), "")


def optional(shape: Shape) -> Shape:
    """The same or None.

    >>> optional(Basic.TEXT)
    OneOf(members=(<Basic.TEXT: 'str'>, <Basic.NOTHING: 'None'>))
    """
    members = shape.members if isinstance(shape, OneOf) else (shape,)
    return shape if Basic.NOTHING in members else OneOf((*members, Basic.NOTHING))


def members(shape: Shape) -> tuple[Shape, ...]:
    """The members of a union; another shape is its own and only one."""
    return shape.members if isinstance(shape, OneOf) else (shape,)


def in_python(shape: Shape) -> str:
    """How an author writes the type."""
    match shape:
        case Basic():
            return shape.value
        case Number():
            return "Decimal"
        case Choice(values, kind):
            return f"Literal[{', '.join(map(repr, values))}]" if kind is None else kind.__name__
        case Many(item, kind):
            return f"{kind.__name__}[{in_python(item)}{', ...' if kind is tuple else ''}]"
        case Entries(value, key):
            return f"dict[{in_python(key)}, {in_python(value)}]"
        case OneOf(parts):
            return " | ".join(map(in_python, parts))
        case Record(name) | Again(name):
            return name


_BASIC: dict[Any, Basic] = {
    str: Basic.TEXT,
    int: Basic.INTEGER,
    float: Basic.FLOAT,
    bool: Basic.BOOLEAN,
    bytes: Basic.BINARY,
    dt.datetime: Basic.INSTANT,
    dt.date: Basic.DATE,
    dt.time: Basic.TIME,
    dt.timedelta: Basic.DURATION,
    uuid.UUID: Basic.UUID,
    type(None): Basic.NOTHING,
    None: Basic.NOTHING,
    Any: Basic.ANYTHING,
}


def _shape(kind: Any, within: tuple[type, ...], where: str, extras: tuple[Any, ...] = ()) -> Shape:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _shape(arguments[0], within, where, (*arguments[1:], *extras))
    if (supertype := getattr(kind, "__supertype__", None)) is not None:
        return _shape(supertype, within, where, extras)
    if origin in (Union, types.UnionType):
        return OneOf(tuple(_shape(each, within, where, extras) for each in arguments))
    if kind is Decimal:
        return Number(next((each for each in extras if isinstance(each, DecimalDigits)), None))
    if kind is dt.datetime and any(isinstance(each, msgspec.Meta) and each.tz is False for each in extras):
        return Basic.LOCAL
    if kind in _BASIC:
        return _BASIC[kind]
    if origin is Literal and all(isinstance(each, str | int) for each in arguments):
        return Choice(arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind, where)
    if isinstance(origin, type) and issubclass(origin, tuple | Sequence | AbstractSet | Mapping):
        return _collection(origin, arguments, within, where)
    if _is_record(origin or kind):
        return _record(kind, origin or kind, within, where)
    raise TypeError(f"{_at(where)}no format has a type for {type_name(kind)}")


def _enum(kind: type[Enum], where: str) -> Choice:
    values = tuple(member.value for member in kind)
    if not values or not (all(isinstance(v, str) for v in values) or all(type(v) is int for v in values)):
        raise TypeError(f"{_at(where)}the values of {kind.__name__} are neither all texts nor all integers")
    return Choice(values, kind, kind.__name__)


def _collection(origin: type, arguments: tuple[Any, ...], within: tuple[type, ...], where: str) -> Shape:
    if issubclass(origin, Mapping):
        return Entries(_shape(arguments[1], within, f"{where}{{}}"), _shape(arguments[0], within, f"{where}{{}}"))
    items = [each for each in arguments if each is not Ellipsis]
    if issubclass(origin, tuple) and len(items) == len(arguments):
        raise TypeError(f"{_at(where)}no format has a type for a tuple of a fixed length; use a Struct, or list[...]")
    kinds: tuple[type, ...] = (frozenset, set, tuple)
    kind = next((each for each in kinds if issubclass(origin, each)), set if issubclass(origin, AbstractSet) else list)
    return Many(_shape(items[0], within, f"{where}[]"), kind)


def _is_record(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or named_tuple


def _record(kind: Any, cls: type, within: tuple[type, ...], where: str) -> Record | Again:
    if cls in within:
        return Again(cls.__name__, cls)
    parts = tuple(
        Part(name, written, _shape(hint, (*within, cls), f"{where}.{written}" if where else written), default)
        for name, written, hint, default in _parts(kind, cls)
    )
    tagged = issubclass(cls, msgspec.Struct) and cls.__struct_config__.tag is not None
    return Record(cls.__name__, parts, cls, _doc(cls), tagged)


def _parts(kind: Any, cls: Any) -> list[tuple[str, str, Any, Callable[[], Any] | None]]:
    if issubclass(cls, msgspec.Struct):
        hints = typing.get_type_hints(cls, include_extras=True)
        return [
            (each.name, each.encode_name, hints.get(each.name, each.type), _default(each.default, each.default_factory))
            for each in msgspec.structs.fields(kind)
        ]
    hints = typing.get_type_hints(cls, include_extras=True)
    if dataclasses.is_dataclass(cls):
        return [
            (each.name, each.name, hints[each.name], _default(each.default, each.default_factory))
            for each in dataclasses.fields(cls)
            if each.init
        ]
    defaults: Mapping[str, Any] = cls._field_defaults
    return [(name, name, hints.get(name, Any), _default(defaults.get(name, msgspec.NODEFAULT), None)) for name in hints]


def _default(value: Any, factory: Any) -> Callable[[], Any] | None:
    missing = (msgspec.NODEFAULT, dataclasses.MISSING, None)
    if factory is not None and factory not in missing:
        made: Callable[[], Any] = factory
        return made
    return None if value is msgspec.NODEFAULT or value is dataclasses.MISSING else lambda: value


def _doc(cls: type) -> str | None:
    doc = cls.__dict__.get("__doc__")
    generated = doc is None or doc.startswith(f"{cls.__name__}(")
    return None if generated else typing.cast("str", doc)


def _at(where: str) -> str:
    return f"field '{where}': " if where else ""
