"""What connects a Python type with a message of Protobuf: how objects are made of messages, and messages of objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID

from deltaworks.errors import SerializationError
from deltaworks.serdes import shapes
from deltaworks.serdes.conversions import (
    Convert,
    checked,
    float_32,
    float_64,
    integer,
    known,
    read_many,
    text_of_uuid,
    write_many,
)
from deltaworks.serdes.protobuf.described import is_map, type_word
from deltaworks.serdes.protobuf.known_types import KNOWN, WRAPPERS
from deltaworks.serdes.scalars import DecimalText
from deltaworks.serdes.shapes import Again, Basic, Choice, Entries, Many, Number, OneOf, Shape, in_python

_DECIMAL = DecimalText()


@dataclass(frozen=True)
class Fit:
    """How one value of a field is read and written; None: as it is."""

    read: Convert | None = None
    write: Convert | None = None


@dataclass
class Fitted:
    """A type that fits a message."""

    fit: Fit
    problems: list[str] = field(default_factory=list)
    """Why it does not."""


def fitted(descriptor: Any, shape: Shape) -> Fitted:
    """Compares a type with a message; `problems` says by field what does not fit."""
    fitting = _Fitting()
    if not isinstance(shape, shapes.Record):
        return Fitted(Fit(), [f"a message is a Struct, a dataclass or a NamedTuple, and not {in_python(shape)}"])
    return Fitted(fitting.message(descriptor, shape, ""), fitting.problems)


class _Fitting:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self._open: dict[tuple[str, type], list[Fit]] = {}

    def message(self, descriptor: Any, shape: shapes.Record, where: str) -> Fit:
        from google.protobuf.message_factory import GetMessageClass

        assert shape.kind is not None
        place = self._open.setdefault((descriptor.full_name, shape.kind), [])
        parts = []
        for part in shape.parts:
            path = f"{where}.{part.written}" if where else part.written
            if (found := descriptor.fields_by_name.get(part.written)) is None:
                has = ", ".join(each.name for each in descriptor.fields)
                self.problems.append(f"field '{path}' is not in the schema, which has {has or 'no fields'}")
            else:
                parts.append((part, found, self.field(found, part, path)))
        made: Any = GetMessageClass(descriptor)
        place.append(Fit(_read_message(shape.kind, parts), _write_message(made, parts)))
        return place[0]

    def field(self, found: Any, part: shapes.Part, where: str) -> Fit:
        shape = part.shape
        rest = [each for each in shapes.members(shape) if each is not Basic.NOTHING]
        if len(rest) != 1:
            return self._misfit(found, shape, where)
        if rest[0] is not shape and not found.has_presence and not part.default:
            self.problems.append(f"field '{where}' may be None in the type, and is never missing in the schema")
        if found.containing_oneof is not None and rest[0] is shape:
            self.problems.append(
                f"field '{where}' may be missing in the schema, which has it in a oneof, and not in the type"
            )
        shape = rest[0]
        if is_map(found):
            return self._map(found, shape, where)
        if found.is_repeated:
            if not isinstance(shape, Many):
                return self._misfit(found, shape, where)
            inner = self._one(found, shape.item, f"{where}[]")
            return Fit(read_many(shape.kind, inner.read) or list, write_many(shape.kind, inner.write) or list)
        return self._one(found, shape, where)

    def _map(self, found: Any, shape: Shape, where: str) -> Fit:
        if not isinstance(shape, Entries):
            return self._misfit(found, shape, where)
        key, value = (found.message_type.fields_by_name[name] for name in ("key", "value"))
        keys, values = self._one(key, shape.key, f"{where}{{}}"), self._one(value, shape.value, f"{where}{{}}")
        if keys.read is not None:
            return self._misfit(found, shape, where)
        return Fit(_read_map(values.read), _write_map(keys.write, values.write))

    def _one(self, found: Any, shape: Shape, where: str) -> Fit:
        if found.message_type is not None:
            return self._message_value(found, shape, where)
        if found.enum_type is not None:
            return self._enum(found, shape, where)
        return _scalar(type_word(found).removeprefix("repeated "), shape) or self._misfit(found, shape, where)

    def _message_value(self, found: Any, shape: Shape, where: str) -> Fit:
        name = found.message_type.full_name
        if (fit := KNOWN.get((name, _kind(shape)))) is not None:
            return Fit(fit[0], fit[1](found.message_type))
        if name in WRAPPERS and (inner := _scalar(WRAPPERS[name], shape)) is not None:
            return _wrapper(inner, found.message_type)
        match shape:
            case shapes.Record(_, _, kind) | Again(_, kind) if kind is not None:
                if (name, kind) in self._open:
                    place = self._open[name, kind]
                    return Fit(lambda value: _ready(place).read(value), lambda value: _ready(place).write(value))
                if isinstance(shape, shapes.Record):
                    return self.message(found.message_type, shape, where)
        return self._misfit(found, shape, where)

    def _enum(self, found: Any, shape: Shape, where: str) -> Fit:
        numbers = {each.name: each.number for each in found.enum_type.values}
        match shape:
            case Basic.INTEGER:
                return Fit(None, integer(32))
            case Choice(values, kind):
                names = _names_of(values, kind, numbers)
                if names is None:
                    return self._misfit(found, shape, where, f"the schema has {', '.join(numbers)}")
                members: list[Any] = list(values if kind is None else kind)
                of_number = {numbers[name]: member for name, member in zip(names, members, strict=True)}
                return Fit(known(of_number), known({member: number for number, member in of_number.items()}))
            case _:
                return self._misfit(found, shape, where)

    def _misfit(self, found: Any, shape: Shape, where: str, why: str = "") -> Fit:
        both = f"field '{where}' is {type_word(found)} in the schema, and {in_python(shape)} in the type"
        self.problems.append(f"{both}: {why}" if why else both)
        return Fit()


def _ready(place: list[Fit]) -> Any:
    """The conversions of a message inside itself."""
    return place[0]


def _names_of(values: tuple[Any, ...], kind: Any, numbers: dict[str, int]) -> list[str] | None:
    """The name in the schema of each value of a type; None: the schema has others."""
    by_number = {number: name for name, number in numbers.items()}
    named = [[str(each) for each in values], [by_number.get(each, "") for each in values]]
    if kind is not None:
        named.append([each.name for each in kind])
    return next((each for each in named if set(each) == set(numbers)), None)


_WIDTHS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), 32),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32", "uint64", "fixed64"), 65),
}
"""Bits that are let through; the message itself refuses what is too large for it."""


def _scalar(word: str, shape: Shape) -> Fit | None:
    match word, shape:
        case "string", Basic.TEXT:
            return Fit()
        case "string", Basic.UUID:
            return Fit(UUID, text_of_uuid)
        case "string", Number():
            return Fit(
                lambda text: _DECIMAL.deserialize(text.encode()), lambda value: _DECIMAL.serialize(value).decode()
            )
        case "string", Choice(values, kind) if all(isinstance(each, str) for each in values):
            of_value: dict[Any, Any] = dict(zip(values, values if kind is None else kind, strict=True))
            return Fit(known(of_value), known({member: value for value, member in of_value.items()}))
        case "bytes", Basic.BINARY:
            return Fit(None, checked(bytes))
        case "bool", Basic.BOOLEAN:
            return Fit(None, checked(bool))
        case "double", Basic.FLOAT:
            return Fit(None, float_64)
        case "float", Basic.FLOAT:
            return Fit(None, float_32)
        case _, Basic.INTEGER if word in _WIDTHS:
            return Fit(None, integer(_WIDTHS[word]))
        case _:
            return None


def _decimal(text: str) -> Decimal:
    return _DECIMAL.deserialize(text.encode())


def _text_of_decimal(value: Decimal) -> str:
    return _DECIMAL.serialize(value).decode()


def _kind(shape: Shape) -> Any:
    return Number if isinstance(shape, Number) else shape


def _wrapper(inner: Fit, descriptor: Any) -> Fit:
    from google.protobuf.message_factory import GetMessageClass

    made: Any = GetMessageClass(descriptor)
    read, write = inner.read, inner.write
    return Fit(
        lambda value: value.value if read is None else read(value.value),
        lambda value: made(value=value if write is None else write(value)),
    )


def _read_map(convert: Convert | None) -> Convert:
    if convert is None:
        return dict
    return lambda entries: {key: convert(value) for key, value in entries.items()}


def _write_map(key: Convert | None, value: Convert | None) -> Convert:
    def write(entries: Any) -> dict[Any, Any]:
        return {
            (each if key is None else key(each)): (other if value is None else value(other))
            for each, other in entries.items()
        }

    return write


_Parts = list[tuple[shapes.Part, Any, Fit]]


def _read_message(kind: type, parts: _Parts) -> Convert:
    getters = [(part.name, _getter(part, found, fit)) for part, found, fit in parts]
    plain = [(part.name, found.name) for part, found, fit in parts if fit.read is None and not _may_miss(part, found)]
    others = [each for each in getters if each[0] not in {name for name, _ in plain}]
    names = [name for name, _ in plain]
    fields = [name for _, name in plain]
    get: Convert = (
        attrgetter(*fields) if len(fields) > 1 else lambda message: [getattr(message, name) for name in fields]
    )

    def read(message: Any) -> Any:
        cells = dict(zip(names, get(message), strict=True))
        for name, getter in others:
            cells[name] = getter(message)
        return kind(**cells)

    return read


def _cells(names: list[str]) -> Convert:
    """A function that gets several attributes at once."""
    return attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]


def _may_miss(part: shapes.Part, found: Any) -> bool:
    """Whether it makes a difference that a field is not set."""
    return found.has_presence and (found.message_type is not None or part.default is not None or _is_optional(part))


def _is_optional(part: shapes.Part) -> bool:
    return isinstance(part.shape, OneOf)


def _getter(part: shapes.Part, found: Any, fit: Fit) -> Convert:
    name, read, default = found.name, fit.read, part.default
    missing: Callable[[], Any] = default or (lambda: None)

    def get(message: Any) -> Any:
        value = getattr(message, name)
        return value if read is None else _named(name, read, value)

    def get_if_set(message: Any) -> Any:
        if message.HasField(name):
            return get(message)
        if default is None and not _is_optional(part):
            raise ValueError(f"field '{name}' is not set")
        return missing()

    return get_if_set if _may_miss(part, found) else get


def _named(name: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, ArithmeticError, SerializationError) as error:
        raise ValueError(f"field '{name}': {error}") from error


def _write_message(made: Any, parts: _Parts) -> Convert:
    names = [part.name for part, _, _ in parts]
    fields = [found.name for _, found, _ in parts]
    converted = [(found.name, fit.write) for _, found, fit in parts if fit.write is not None]
    required = [found.name for part, found, _ in parts if not _is_optional(part)]
    choices: dict[str, list[str]] = {}
    for _, found, _ in parts:
        if (among := found.containing_oneof) is not None and len(among.fields) > 1:
            choices.setdefault(among.name, []).append(found.name)
    get = _cells(names)

    def write(value: Any) -> Any:
        cells = dict(zip(fields, get(value), strict=True))
        for name in required:
            if cells[name] is None:
                raise ValueError(f"field '{name}' is None")
        for name, convert in converted:
            if cells[name] is not None:
                cells[name] = _named(name, convert, cells[name])
        for name, among in choices.items():
            if sum(cells[each] is not None for each in among) > 1:
                raise ValueError(f"only one of {', '.join(among)} can be set, which are in oneof '{name}'")
        return made(**cells)

    return write
