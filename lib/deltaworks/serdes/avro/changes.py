"""Which values of one Avro schema can be read with another, by Avro's rules of schema resolution, in words.

Three rules are stricter than Avro's. A logical type is never dropped nor added, because a field of a Python type would
get a value of another; a union is read only if all its branches can be, and an enum only if all its symbols can be, so
that no record fails later.
"""

from __future__ import annotations

from collections.abc import Iterator

from deltaworks.serdes.avro.nodes import (
    NO_DEFAULT,
    Array,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Symbols,
    Union,
    short,
    words,
)

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SAME_MEANING = {
    "timestamp-millis": "instant",
    "timestamp-micros": "instant",
    "local-timestamp-millis": "local",
    "local-timestamp-micros": "local",
    "time-millis": "time",
    "time-micros": "time",
    "date": "date",
    "decimal": "decimal",
    "uuid": "uuid",
}
"""Logical types, and what they have in common with others; all others mean no more than their bytes."""


def incompatibilities(writer: Node, reader: Node) -> list[str]:
    """Why values of `writer` cannot be read with `reader`, a reason per field; empty if all can."""
    return list(dict.fromkeys(_Resolution().of(writer, reader, "the value")))


def meaning(node: Node) -> str | None:
    """What a logical type adds to bytes; None: nothing, or nothing that Python has a type for."""
    return _SAME_MEANING.get(node.logical or "") if isinstance(node, Primitive | Fixed) else None


class _Resolution:
    def __init__(self) -> None:
        self._compared: set[tuple[int, int]] = set()
        """Pairs of records already compared, so that the comparison of recursive ones ends."""

    def of(self, writer: Node, reader: Node, where: str) -> Iterator[str]:
        match writer, reader:
            case Union(branches), _:
                for branch in branches:
                    if not self._fits(branch, reader):
                        yield from self._branch(branch, writer, reader, where)
            case _, Union(branches):
                if not any(self._fits(writer, branch) for branch in branches):
                    yield _changed(where, writer, reader)
            case Record(), Record():
                yield from self._records(writer, reader, where)
            case Array(one), Array(other):
                yield from self.of(one, other, f"each item of {where}")
            case Map(one), Map(other):
                yield from self.of(one, other, f"entries of {where}")
            case Symbols(), Symbols():
                yield from self._symbols(writer, reader, where)
            case Fixed(), Fixed() if _names_fit(writer, reader) and writer.size == reader.size:
                yield from self._logical(writer, reader, where)
            case Primitive(one), Primitive(other) if one == other or other in _PROMOTIONS.get(one, ()):
                yield from self._logical(writer, reader, where)
            case _:
                yield _changed(where, writer, reader)

    def _fits(self, writer: Node, reader: Node) -> bool:
        compared = set(self._compared)
        if not list(self.of(writer, reader, "")):
            return True
        self._compared = compared
        return False

    def _branch(self, branch: Node, writer: Node, reader: Node, where: str) -> Iterator[str]:
        """The reasons inside a branch, if it is clear what it is to be read with."""
        inner = [each for each in (reader.branches if isinstance(reader, Union) else (reader,)) if type(each) is Record]
        if isinstance(branch, Record) and len(inner) == 1:
            yield from self.of(branch, inner[0], where)
        elif isinstance(branch, Primitive) and branch.type == "null":
            yield f"{where} may be null, and is {words(reader)}"
        else:
            yield _changed(where, writer, reader)

    def _records(self, writer: Record, reader: Record, where: str) -> Iterator[str]:
        pair = id(writer), id(reader)
        if pair in self._compared:
            return
        self._compared.add(pair)
        if not _names_fit(writer, reader):
            yield _changed(where, writer, reader)
            return
        within = "" if where == "the value" else f" of {where}"
        for part in reader.fields:
            if (found := written(part, writer)) is not None:
                yield from self.of(found.type, part.type, f"field '{part.name}'{within}")
            elif part.default is NO_DEFAULT:
                yield f"field '{part.name}'{within} is not written, and has no default"

    def _symbols(self, writer: Symbols, reader: Symbols, where: str) -> Iterator[str]:
        if not _names_fit(writer, reader):
            yield _changed(where, writer, reader)
        elif reader.default is None and (gone := [each for each in writer.symbols if each not in reader.symbols]):
            yield f"{where} can be {', '.join(map(repr, gone))}, and is one of {', '.join(map(repr, reader.symbols))}"

    def _logical(self, writer: Primitive | Fixed, reader: Primitive | Fixed, where: str) -> Iterator[str]:
        one, other = meaning(writer), meaning(reader)
        if one != other or (one == "decimal" and (writer.scale != reader.scale or writer.precision > reader.precision)):
            yield _changed(where, writer, reader)


def written(part: Field, writer: Record) -> Field | None:
    """The writer's field that a field of the reader gets its values from; None: there is none."""
    return next((writer.by_name[name] for name in (part.name, *part.aliases) if name in writer.by_name), None)


def _names_fit(writer: Record | Symbols | Fixed, reader: Record | Symbols | Fixed) -> bool:
    return short(writer.name) == short(reader.name) or writer.name in reader.aliases


def _changed(where: str, writer: Node, reader: Node) -> str:
    return f"{where} is written as {words(writer)}, and read as {words(reader)}"
