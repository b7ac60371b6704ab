"""The Python type of an Avro schema, as a shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deltaworks.serdes.avro import nodes
from deltaworks.serdes.avro.changes import meaning
from deltaworks.serdes.avro.fitting import raw_default
from deltaworks.serdes.avro.nodes import NO_DEFAULT, Array, Fixed, Map, Primitive, Symbols, Union, short
from deltaworks.serdes.decimal_digits import DecimalDigits
from deltaworks.serdes.shapes import Again, Basic, Choice, Entries, Many, Number, OneOf, Part, Record, Shape

_MEANINGS = {
    "instant": Basic.INSTANT,
    "local": Basic.LOCAL,
    "time": Basic.TIME,
    "date": Basic.DATE,
    "uuid": Basic.UUID,
}
_PRIMITIVES = {
    "null": Basic.NOTHING,
    "boolean": Basic.BOOLEAN,
    "int": Basic.INTEGER,
    "long": Basic.INTEGER,
    "float": Basic.FLOAT,
    "double": Basic.FLOAT,
    "bytes": Basic.BINARY,
    "string": Basic.TEXT,
}


def shape_from(node: nodes.Node) -> Shape:
    """The shape of a schema: what its values are in Python."""
    return _Shapes(frozenset(_among_others(node, set()))).of(node, ())


class _Shapes:
    """The shapes of one schema.

    Args:
        tagged: names of the records that are in a union with others.
    """

    def __init__(self, tagged: frozenset[str]) -> None:
        self._tagged = tagged

    def of(self, node: nodes.Node, within: tuple[str, ...]) -> Shape:
        match node:
            case Primitive() | Fixed() if (said := meaning(node)) is not None:
                return Number(DecimalDigits(node.precision, node.scale)) if said == "decimal" else _MEANINGS[said]
            case Primitive(kind):
                return _PRIMITIVES[kind]
            case Fixed():
                return Basic.BINARY
            case Symbols(name, symbols, _, doc):
                return Choice(symbols, name=short(name), doc=doc)
            case Array(items):
                return Many(self.of(items, within))
            case Map(values):
                return Entries(self.of(values, within))
            case Union(branches):
                found = dict.fromkeys(self.of(each, within) for each in branches)
                members = tuple(sorted(found, key=lambda each: each is Basic.NOTHING))
                return OneOf(members) if len(members) > 1 else members[0]
            case nodes.Record(name, fields, doc):
                if name in within:
                    return Again(short(name))
                parts = tuple(self._part(each, (*within, name)) for each in fields)
                return Record(short(name), parts, doc=doc, tagged=name in self._tagged)

    def _part(self, field: nodes.Field, within: tuple[str, ...]) -> Part:
        return Part(field.name, field.name, self.of(field.type, within), _default(field), field.doc)


def _among_others(node: nodes.Node, seen: set[int]) -> Iterator[str]:
    """Names of the records that are in a union with others."""
    match node:
        case Array(inner) | Map(inner):
            yield from _among_others(inner, seen)
        case Union(branches):
            records = [each.name for each in branches if isinstance(each, nodes.Record)]
            yield from records if len(records) > 1 else ()
            for each in branches:
                yield from _among_others(each, seen)
        case nodes.Record(_, fields) if id(node) not in seen:
            seen.add(id(node))
            for field in fields:
                yield from _among_others(field.type, seen)
        case _:
            pass


def _default(field: nodes.Field) -> Callable[[], Any] | None:
    """The default in Python; none if it can only be said in Avro."""
    if field.default is NO_DEFAULT:
        return None
    made = raw_default(field.default, field.type)
    try:
        value = made()
    except ValueError:
        return None
    return None if isinstance(value, dict | list) and value else made
