"""Which rows the keys of a topic are of, whatever their bytes are.

The bytes of a key change with its schema's id, with the converter and with the order of the columns, and the row stays
the same. So keys are compared by what they say, and only with keys of the same *form*: two forms may write one row with
two values (milliseconds, then microseconds), and then nobody can say whether a row is there.

| key | form | row |
|---|---|---|
| JSON, with or without a schema | columns, kinds of their values; the schema, if both have one | the columns by name |
| 0, the id of a schema, bytes | the schema, without what the bytes do not depend on | the bytes |
| anything else | what a text of a struct begins with | the bytes |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from deltaworks.errors import ConfigurationError, SerializationError
from deltaworks.serdes import wire
from deltaworks.serdes.schemas import Schemas, WriterSchema

_STRUCT = b"Struct{"
_TABLE = "__dbz__physicalTableIdentifier"
"""The column of a key that says which of several tables in one topic it is of (`ByLogicalTableRouter`)."""
_NULL = "null"
_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    type(None): _NULL,
    list: "list",
    dict: "object",
}
_OF_READERS = ("doc", "default", "aliases", "optional", "connect.default", "connect.doc")
"""What a schema says, and the bytes of a key do not depend on."""
_OF_RECORDS = ("connect.version", "version")
"""Likewise of the record itself. Its name says which table it is of; that of a number, what it counts."""


@dataclass(frozen=True)
class Form:
    """How keys are written."""

    schema_id: int | None = None
    columns: tuple[tuple[str, str], ...] | None = None
    """Of JSON: columns and kinds of their values."""
    schema: str | None = None
    """Of JSON with a schema."""
    table: str | None = None
    """Of JSON: which of several tables it is of. One that is captured no more writes no key, so nothing is like its."""
    begin: bytes = b""
    """Of a struct as text: the name of its first column."""
    named: bool = False
    """Of JSON with a schema: whether it has the name of the table."""

    def tells_tables(self, *, renamed: bool) -> bool:
        """Whether keys of several tables in one topic differ in it.

        Args:
            renamed: whether the schemas of all of them have one name.
        """
        return self.table is not None or (not renamed and (self.named or self.schema_id is not None))

    def __str__(self) -> str:
        if self.schema_id is not None:
            return f"of schema {self.schema_id}"
        if self.columns is None:
            return f"a struct as text, {self.begin.decode(errors='replace')}...," if self.begin else "bytes or text"
        inside = ", ".join(f"{name or 'value'}: {kind}" for name, kind in self.columns)
        of = "" if self.table is None else f" of table '{self.table}'"
        return f"JSON {'with a schema ' if self.schema is not None else ''}({inside}){of}"


class Rows:
    """The rows of a topic that there are, by their keys.

    Args:
        there: keys that have a row.
        written: keys as they are written now, which may have none; they say only which forms there are.
        schemas: gives the registry that keys name their schemas in. It is asked only if keys name several schemas.
    """

    def __init__(self, there: set[bytes], written: Iterable[bytes], schemas: Callable[[], Schemas]) -> None:
        self._keys = there
        self._rows: set[bytes] | None = None
        self._forms: set[Form] = set()
        self._written = written
        self._schemas = schemas
        self._same: dict[tuple[Form, Form], bool] = {}
        self.reasons: dict[str, None] = {}
        """Why schemas could not be compared."""

    def __contains__(self, key: bytes) -> bool:
        """Whether a row is there."""
        return key in self._keys or _parsed(key)[1] in self._known()

    def can_tell(self, key: bytes) -> bool:
        """Whether a row that is not among them is none of them."""
        self._known()
        form = _parsed(key)[0]
        return any(self._is_same(form, other) for other in self._forms)

    @property
    def forms(self) -> str:
        """How keys are written, in words."""
        self._known()
        return ", or ".join(sorted(map(str, self._forms)))

    def _known(self) -> set[bytes]:
        """Parsed once, and not before a key is met that is not there byte by byte."""
        if self._rows is None:
            self._rows = set()
            for key in self._keys:
                form, row = _parsed(key)
                self._forms.add(form)
                self._rows.add(row)
            self._forms.update(_parsed(key)[0] for key in self._written)
        return self._rows

    def _is_same(self, one: Form, other: Form) -> bool:
        if (one, other) not in self._same:
            self._same[one, other] = self._compared(one, other)
        return self._same[one, other]

    def _compared(self, one: Form, other: Form) -> bool:
        if one == other:
            return True
        if one.schema_id is not None and other.schema_id is not None:
            return self._are_alike(one.schema_id, other.schema_id)
        if one.columns is None or other.columns is None:
            return False
        mine, theirs = dict(one.columns), dict(other.columns)
        if one.table != other.table:
            return False
        if mine.keys() != theirs.keys() or (None not in (one.schema, other.schema) and one.schema != other.schema):
            return False
        return all(mine[name] == theirs[name] or _NULL in (mine[name], theirs[name]) for name in mine)

    def _are_alike(self, one: int, other: int) -> bool:
        """Whether the same bytes say the same with two schemas."""
        try:
            mine, theirs = (self._schemas().by_id(number) for number in (one, other))
        except (SerializationError, ConfigurationError) as error:
            self.reasons[error.message] = None
            return False
        return _canonical(mine) == _canonical(theirs)


def form_of(key: bytes) -> Form:
    """How a key is written."""
    return _parsed(key)[0]


def _parsed(key: bytes) -> tuple[Form, bytes]:
    """The form of a key, and its row."""
    if (number := wire.schema_id(key)) is not None:
        return Form(schema_id=number), b"r" + key[wire.HEADER_BYTES :]
    if key[:1] in (b"{", b'"'):
        try:
            return _of_json(msgspec.json.decode(key))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    return Form(begin=key.partition(b"=")[0] if key.startswith(_STRUCT) else b""), b"b" + key


def _of_json(found: Any) -> tuple[Form, bytes]:
    schema, named = None, False
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        said, found = found["schema"], found["payload"]
        schema = None if said is None else _schema_of_json(said)
        named = isinstance(said, dict) and said.get("type") == "struct" and bool(said.get("name"))
    columns = found if isinstance(found, dict) else {"": found}
    kinds = tuple(sorted((name, _KINDS[type(value)]) for name, value in columns.items()))
    table = str(columns[_TABLE]) if _TABLE in columns else None
    row = b"j" + msgspec.json.encode(found, order="sorted")
    return Form(columns=kinds, schema=schema, table=table, named=named), row


def _schema_of_json(schema: Any) -> str:
    """What the schema in front of a key says of its columns, by name."""
    if isinstance(schema, dict):
        schema = {name: each for name, each in schema.items() if name not in _OF_RECORDS}
        if isinstance(fields := schema.get("fields"), list):
            schema["fields"] = sorted(map(_plain, fields), key=lambda each: json.dumps(each, sort_keys=True))
    return json.dumps(_plain(schema), sort_keys=True)


def _canonical(schema: WriterSchema) -> str:
    """A text that two schemas share only if the same bytes say the same with both."""
    if schema.kind != "AVRO":
        return schema.fingerprint
    try:
        found = json.loads(schema.text)
    except ValueError:
        return schema.fingerprint
    if isinstance(found, dict):
        found = {name: each for name, each in found.items() if name not in _OF_RECORDS}
    referred = json.dumps(schema.referred, sort_keys=True)
    return f"{schema.kind} {json.dumps(_plain(found), sort_keys=True)} {referred}"


def _plain(schema: Any) -> Any:
    """A schema without what is for readers only."""
    if isinstance(schema, dict):
        return {name: _plain(each) for name, each in schema.items() if name not in _OF_READERS}
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    return schema
