"""The Avro schema of a Python type."""

from __future__ import annotations

import re
from typing import Any

from deltaworks.serdes import shapes
from deltaworks.serdes.avro import nodes
from deltaworks.serdes.decimal_digits import DecimalDigits
from deltaworks.serdes.shapes import Again, Basic, Choice, Entries, Many, Number, OneOf, Shape, in_python

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS = DecimalDigits(38, 18)
"""Those of a column whose type does not say."""
_BASIC = {
    Basic.TEXT: nodes.Primitive("string"),
    Basic.INTEGER: nodes.Primitive("long"),
    Basic.FLOAT: nodes.Primitive("double"),
    Basic.BOOLEAN: nodes.Primitive("boolean"),
    Basic.BINARY: nodes.Primitive("bytes"),
    Basic.INSTANT: nodes.Primitive("long", "timestamp-micros"),
    Basic.LOCAL: nodes.Primitive("long", "local-timestamp-micros"),
    Basic.DATE: nodes.Primitive("int", "date"),
    Basic.TIME: nodes.Primitive("long", "time-micros"),
    Basic.UUID: nodes.Primitive("string", "uuid"),
    Basic.NOTHING: nodes.Primitive("null"),
}


def schema_from(shape: Shape, namespace: str | None = None) -> nodes.Node:
    """The schema of a type: `long` for `int`, `timestamp-micros` for `datetime`, a record for a Struct, and so on.

    Args:
        shape: the type.
        namespace: of its records and enums.

    Raises:
        TypeError: Avro has no such type; says which field it is.
    """
    return _Derivation(namespace).node(shape, "")


class _Derivation:
    def __init__(self, namespace: str | None) -> None:
        self._space = f"{namespace}." if namespace else ""
        self._records: dict[type, nodes.Record] = {}
        self._choices: dict[str, tuple[Choice, nodes.Symbols]] = {}
        self._names: set[str] = set()

    def node(self, shape: Shape, where: str) -> nodes.Node:
        match shape:
            case Basic() if shape in _BASIC:
                return _BASIC[shape]
            case Number(digits):
                digits = digits or _DIGITS
                return nodes.Primitive("bytes", "decimal", digits.precision, digits.scale)
            case Choice():
                return self._choice(shape, where)
            case Many(item):
                return nodes.Array(self.node(item, where))
            case Entries(value, Basic.TEXT):
                return nodes.Map(self.node(value, where))
            case OneOf(members):
                found = [self.node(each, where) for each in members]
                return nodes.Union(tuple(dict.fromkeys(found)))
            case shapes.Record():
                return self._record(shape, where)
            case Again(_, kind) if kind in self._records:
                return self._records[kind]
            case _:
                raise TypeError(f"{_at(where)}Avro has no type for {in_python(shape)}")

    def _record(self, shape: shapes.Record, where: str) -> nodes.Record:
        assert shape.kind is not None
        if (known := self._records.get(shape.kind)) is not None:
            return known
        record = nodes.Record(self._new_name(shape.name, where), doc=_line(shape.doc))
        self._records[shape.kind] = record
        record.fields = tuple(self._field(part, shape.name, where) for part in shape.parts)
        record.by_name = {each.name: each for each in record.fields}
        return record

    def _field(self, part: shapes.Part, record: str, where: str) -> nodes.Field:
        path = f"{where}.{part.written}" if where else part.written
        if not _NAME.fullmatch(part.written):
            raise TypeError(f"{_at(path)}Avro allows letters, digits and underscores in names")
        shape = _named(part.shape, f"{record}{_capitalized(part.written)}")
        default = nodes.NO_DEFAULT if part.default is None else _default(part.default(), shape)
        return nodes.Field(part.written, self.node(_with_first(shape, default), path), default, part.doc)

    def _choice(self, shape: Choice, where: str) -> nodes.Node:
        if not all(isinstance(each, str) for each in shape.values):
            return _BASIC[Basic.INTEGER]
        symbols = tuple(str(each) for each in shape.values)
        if shape.name is None or not all(map(_NAME.fullmatch, symbols)):
            return _BASIC[Basic.TEXT]
        if (known := self._choices.get(shape.name)) is not None and known[0].values == shape.values:
            return known[1]
        found = nodes.Symbols(self._new_name(shape.name, where), symbols, any_name=shape.kind is None)
        self._choices[shape.name] = shape, found
        return found

    def _new_name(self, name: str, where: str) -> str:
        if not _NAME.fullmatch(name):
            raise TypeError(f"{_at(where)}Avro allows letters, digits and underscores in names, and this is '{name}'")
        if name in self._names:
            raise TypeError(f"{_at(where)}there are two types called '{name}'")
        self._names.add(name)
        return f"{self._space}{name}"


def _named(shape: Shape, name: str) -> Shape:
    """A shape whose `Literal`, if it has one, has a name."""
    match shape:
        case Choice(values, None):
            return Choice(values, name=name)
        case Many(item, kind):
            return Many(_named(item, name), kind)
        case Entries(value, key):
            return Entries(_named(value, name), key)
        case OneOf(members) if sum(isinstance(each, Choice) for each in members) == 1:
            return OneOf(tuple(_named(each, name) for each in members))
        case _:
            return shape


def _with_first(shape: Shape, default: Any) -> Shape:
    """A union whose first member is that of the default, as Avro wants it."""
    if isinstance(shape, OneOf) and default is None:
        return OneOf((Basic.NOTHING, *(each for each in shape.members if each is not Basic.NOTHING)))
    return shape


def _default(value: Any, shape: Shape) -> Any:
    """The default as JSON; none if Avro's JSON cannot say it."""
    match value, shape:
        case None, _:
            return None
        case bool() | str() | int() | float(), Basic() | Choice():
            return value
        case (), Many() | OneOf():
            return []
        case [] | {}, Many() | Entries() | OneOf():
            return value
        case _ if isinstance(shape, Choice) and shape.kind is not None:
            return value.value
        case _ if isinstance(shape, OneOf) and isinstance(value, str | int | float | bool):
            return value if _is_first(value, shape) else nodes.NO_DEFAULT
        case _:
            return [] if isinstance(shape, Many) and not value else nodes.NO_DEFAULT


def _is_first(value: Any, shape: OneOf) -> bool:
    first = {str: Basic.TEXT, bool: Basic.BOOLEAN, int: Basic.INTEGER, float: Basic.FLOAT}[type(value)]
    return shape.members[0] is first


def _line(doc: str | None) -> str | None:
    return None if doc is None else " ".join(doc.strip().partition("\n\n")[0].split())


def _capitalized(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _at(where: str) -> str:
    return f"field '{where}': " if where else ""
