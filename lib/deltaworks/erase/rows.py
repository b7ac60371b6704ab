"""Which rows of a table are a person's: those that name them anywhere.

Columns are searched as a whole first, and only what may be theirs is looked at closely. Records as they were in Kafka
(archives, dead letters) are read with the serdes of their topic; what these cannot read is searched as it is.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.serdes.base import Serde
from deltaworks.topology.persons import Person

Serdes = Callable[[str], list[tuple[Serde[Any], Serde[Any]]]]
"""From the topic of a record to the serdes of its key and value, one pair for each source that reads it."""
_NAMES = {"source_topic", "topic", "op", "operator", "error_class"}
"""Columns of ours that hold names which are nobody's."""
_RAW = (Role.ARCHIVE, Role.DEAD_LETTERS)


@dataclass(frozen=True)
class RowsOf:
    """Finds the rows of a person.

    Args:
        person: whose.
        schema: of the table; None: unknown, so no column is known to be a key.
        serdes: of records as they were in Kafka.
    """

    person: Person
    schema: TableSchema | None = None
    serdes: Serdes = lambda topic: []
    columns: Counter[str] = field(default_factory=Counter)
    """How often each column has named the person so far."""

    def __call__(self, rows: pa.Table) -> pa.Array | None:
        """A mask of their rows; None: there are none.

        Args:
            rows: of one file, with all its columns.
        """
        found: set[int] = set()
        for name in rows.column_names:
            if self.schema is not None and name in _NAMES:
                continue
            named = self._named(rows, name)
            self.columns[name] += len(named)
            found |= named
        if not found:
            return None
        return pa.array([at in found for at in range(rows.num_rows)])

    def text(self, text: str) -> bool:
        """Whether a document in JSON, such as the bounds of a file, names the person."""
        return self.person.in_text(text) if self._is_plain else self.person.in_value(_decoded(text))

    def _named(self, rows: pa.Table, name: str) -> set[int]:
        column, schema = rows.column(name).combine_chunks(), self.schema
        if schema is not None and schema.role in _RAW and name in ("key", "value"):
            return self._records(rows.column("topic"), column, is_key=name == "key")
        return self._cells(column, name, is_key=schema is not None and name in schema.key_names)

    def _cells(self, column: pa.Array, name: str, *, is_key: bool) -> set[int]:
        """The places of a column's cells, at any depth, that name the person."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            return self._cells(column.dictionary_decode(), name, is_key=is_key)
        if pa.types.is_struct(kind):
            parts = (self._cells(pc.struct_field(column, [at]), kind.field(at).name, is_key=is_key)
                     for at in range(kind.num_fields))  # fmt: skip
            return set().union(*parts)
        if pa.types.is_map(kind):
            column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
            kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            inner = self._cells(pc.list_flatten(column), name, is_key=is_key)
            above = pc.list_parent_indices(column)
            return {above[at].as_py() for at in inner}
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return {at for at in self._likely(column) if self.person.in_text(column[at].as_py())}
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return {at for at in self._likely(column) if self.person.in_bytes(column[at].as_py())}
        if pa.types.is_integer(kind) and (is_key or name in self.person.fields) and self._number is not None:
            return set(_true(pc.equal(column.cast(pa.int64(), safe=False), self._number)))
        return set()

    def _records(self, topics: pa.ChunkedArray, column: pa.Array, *, is_key: bool) -> set[int]:
        places = self._likely(column) if self._is_plain else range(len(column))
        found = set()
        for at in places:
            data = column[at].as_py()
            pairs = self.serdes(topics[at].as_py())
            readers: list[Serde[Any] | None] = [pair[0] if is_key else pair[1] for pair in pairs]
            if any(self.person.in_raw(data, serde, is_key=is_key) for serde in readers or [None]):
                found.add(at)
        return found

    def _likely(self, column: pa.Array) -> list[int]:
        """The cells that have the first word of the key somewhere."""
        assert self.person.words is not None
        pattern: Any = self.person.words[0]
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            pattern = pattern.encode()
        return _true(pc.match_substring(column, pattern))

    @property
    def _is_plain(self) -> bool:
        """Whether any serde writes the key as it is; else a record has to be read to see whether it has it."""
        assert self.person.words is not None
        first = self.person.words[0]
        return json.dumps(first) == f'"{first}"' and self._number is None

    @property
    def _number(self) -> int | None:
        assert self.person.words is not None
        text = self.person.words[0] if len(self.person.words) == 1 else ""
        try:
            number = int(text)
        except ValueError:
            return None
        return number if -(1 << 63) <= number < 1 << 63 else None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _true(mask: pa.Array) -> list[int]:
    return [at.as_py() for at in pc.indices_nonzero(mask)]
