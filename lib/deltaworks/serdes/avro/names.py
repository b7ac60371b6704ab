"""Enums that have no name of their own.

Avro reads an enum only with one of the same name. A `Literal` has none: its schema gets one made from record and field,
which nobody else knows. So it is read with whatever name the writer has given it.
"""

from __future__ import annotations

from dataclasses import replace

from deltaworks.serdes.avro.changes import written
from deltaworks.serdes.avro.nodes import Array, Map, Node, Record, Symbols, Union


def adopted(reader: Node, writer: Node) -> Node:
    """The reader's schema, in which enums without a name of their own have those of the writer.

    Args:
        reader: as `from_type.schema_from` and `fitting.fitted` make it; it is not changed.
        writer: of the bytes.
    """
    return _Adoption().of(reader, writer)


class _Adoption:
    def __init__(self) -> None:
        self._records: dict[tuple[int, int], Record] = {}
        self._named: dict[str, tuple[str, ...]] = {}
        """Adopted name -> its symbols: two enums of the reader cannot share one."""

    def of(self, reader: Node, writer: Node) -> Node:
        match reader, writer:
            case Union(branches), _:
                return Union(tuple(self.of(each, writer) for each in branches))
            case _, Union(branches):
                return self.of(reader, next((each for each in branches if type(each) is type(reader)), reader))
            case Record(), Record():
                return self._record(reader, writer)
            case Array(one), Array(other):
                return Array(self.of(one, other))
            case Map(one), Map(other):
                return Map(self.of(one, other))
            case Symbols(any_name=True), Symbols(name):
                if self._named.setdefault(name, reader.symbols) == reader.symbols:
                    return replace(reader, name=name)
        return reader

    def _record(self, reader: Record, writer: Record) -> Record:
        pair = id(reader), id(writer)
        if pair not in self._records:
            made = self._records[pair] = replace(reader, fields=(), by_name={})
            fields = []
            for each in reader.fields:
                found = written(each, writer)
                fields.append(each if found is None else replace(each, type=self.of(each.type, found.type)))
            made.fields = tuple(fields)
            made.by_name = {each.name: each for each in fields}
        return self._records[pair]
