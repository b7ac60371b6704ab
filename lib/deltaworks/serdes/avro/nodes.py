"""Avro schemas as data, with all names resolved. What the specification says of a schema's text is here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

NO_DEFAULT: Any = object()
"""A field without a default; None is one, too."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(frozen=True)
class Primitive:
    """`null`, `boolean`, `int`, `long`, `float`, `double`, `bytes` or `string`, perhaps with a logical type."""

    type: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Fixed:
    """Bytes of a fixed number."""

    name: str
    size: int
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Symbols:
    """An enum."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    any_name: bool = field(default=False, compare=False)
    """The name means nothing: it was made for a `Literal`."""


@dataclass(frozen=True)
class Array:
    """A list."""

    items: Node


@dataclass(frozen=True)
class Map:
    """Entries under texts."""

    values: Node


@dataclass(frozen=True)
class Union:
    """One of several types, in their order."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    name: str
    type: Node
    default: Any = NO_DEFAULT
    doc: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class Record:
    """A record, which may contain itself; so it is compared by identity."""

    name: str
    fields: tuple[Field, ...] = ()
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    by_name: dict[str, Field] = field(default_factory=dict, repr=False)


Node = Primitive | Fixed | Symbols | Array | Map | Union | Record
N = TypeVar("N", Record, Symbols, Fixed)
Source = str | Mapping[str, Any] | list[Any] | Path


def parsed(schema: Source, known: Mapping[str, str] | None = None) -> Node:
    """The schema of a text, of what a JSON parser makes of it, or of a file.

    Args:
        schema: an Avro schema.
        known: the texts of schemas that it refers to, in an order in which each knows those before it.

    Raises:
        ValueError: it is none; says what is wrong in which type.
    """
    names = _Names()
    for text in (known or {}).values():
        names.node(loaded(text), "")
    return names.node(loaded(schema), "")


def loaded(schema: Source) -> Any:
    """What a JSON parser makes of a schema."""
    if isinstance(schema, Path):
        schema = schema.read_text()
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
        try:
            return json.loads(schema)
        except ValueError as error:
            raise ValueError(f"an Avro schema is JSON, and this is none: {error}") from error
    return schema


class _Names:
    """The named types of a schema while it is read."""

    def __init__(self) -> None:
        self._known: dict[str, Node] = {}

    def node(self, schema: Any, space: str) -> Node:
        match schema:
            case str() if schema in PRIMITIVES:
                return Primitive(schema)
            case str():
                return self._reference(schema, space)
            case list():
                return Union(tuple(self.node(each, space) for each in schema))
            case {"type": str(kind)}:
                return self._complex(kind, schema, space)
            case {"type": inner}:
                return self.node(inner, space)
            case _:
                raise ValueError(f"{schema!r} is no Avro type")

    def _reference(self, name: str, space: str) -> Node:
        full = _full(name, space)
        found = self._known.get(full, self._known.get(name))
        if found is None:
            raise ValueError(f"there is no type '{full}'; the types that it has are {', '.join(self._known) or 'none'}")
        return found

    def _complex(self, kind: str, schema: Mapping[str, Any], space: str) -> Node:
        logical = schema.get("logicalType")
        precision, scale = (schema.get("precision", 0), schema.get("scale", 0)) if logical == "decimal" else (0, 0)
        match kind:
            case "array":
                return Array(self.node(_of(schema, "items"), space))
            case "map":
                return Map(self.node(_of(schema, "values"), space))
            case "record" | "error":
                return self._record(schema, space)
            case "enum":
                name = self._name(schema, space)
                symbols = tuple(_of(schema, "symbols"))
                return self._named(
                    Symbols(name, symbols, schema.get("default"), schema.get("doc"), _aliases(schema, name))
                )
            case "fixed":
                name = self._name(schema, space)
                return self._named(Fixed(name, _of(schema, "size"), logical, precision, scale, _aliases(schema, name)))
            case _ if kind in PRIMITIVES:
                return Primitive(kind, logical, precision, scale)
            case _:
                return self._reference(kind, space)

    def _record(self, schema: Mapping[str, Any], space: str) -> Record:
        name = self._name(schema, space)
        record = Record(name, doc=schema.get("doc"), aliases=_aliases(schema, name))
        self._named(record)
        inner = name.rpartition(".")[0]
        record.fields = tuple(
            Field(
                _of(each, "name"),
                self.node(_of(each, "type"), inner),
                each.get("default", NO_DEFAULT),
                each.get("doc"),
                tuple(each.get("aliases", ())),
            )
            for each in _of(schema, "fields")
        )
        record.by_name = {each.name: each for each in record.fields}
        return record

    def _name(self, schema: Mapping[str, Any], space: str) -> str:
        return _full(_of(schema, "name"), schema.get("namespace", space))

    def _named(self, node: N) -> N:
        if node.name in self._known:
            raise ValueError(f"type '{node.name}' is defined twice")
        self._known[node.name] = node
        return node


def to_json(node: Node, written: set[str] | None = None) -> Any:
    """A schema as its text has it; a named type is written where it occurs first."""
    written = set() if written is None else written
    match node:
        case Primitive(kind, None):
            return kind
        case Primitive(kind, logical):
            return {"type": kind, "logicalType": logical, **_digits(node)}
        case Array(items):
            return {"type": "array", "items": to_json(items, written)}
        case Map(values):
            return {"type": "map", "values": to_json(values, written)}
        case Union(branches):
            return [to_json(each, written) for each in branches]
    if node.name in written:
        return node.name
    written.add(node.name)
    aliases = {"aliases": list(node.aliases)} if node.aliases else {}
    match node:
        case Fixed(name, size, logical):
            said = {} if logical is None else {"logicalType": logical, **_digits(node)}
            return {"type": "fixed", "name": name, "size": size, **said, **aliases}
        case Symbols(name, symbols, default, doc):
            rest = {key: value for key, value in (("default", default), ("doc", doc)) if value is not None}
            return {"type": "enum", "name": name, "symbols": list(symbols), **rest, **aliases}
        case Record(name, parts, doc):
            fields = [_field_json(each, written) for each in parts]
            return {"type": "record", "name": name, **({"doc": doc} if doc else {}), **aliases, "fields": fields}


def canonical(node: Node) -> str:
    """A text that two schemas share if their values have the same bytes and the same meaning.

    It is Avro's Parsing Canonical Form, with logical types.
    """
    return json.dumps(_bare(to_json(node)), separators=(",", ":"))


def words(node: Node) -> str:
    """A type in a message, such as `long (timestamp-millis)`."""
    match node:
        case Primitive(kind, None):
            return kind
        case Primitive(kind, logical):
            return f"{kind} ({logical}{_words_of_digits(node)})"
        case Fixed(name, size, logical):
            return f"{name}, {size} bytes" + (f" ({logical}{_words_of_digits(node)})" if logical else "")
        case Array(items):
            return f"array of {words(items)}"
        case Map(values):
            return f"map of {words(values)}"
        case Union(branches):
            return " | ".join(map(words, branches))
        case Symbols(name) | Record(name):
            return name


def records(node: Node, seen: set[int] | None = None) -> Iterator[Record]:
    """All records in a schema, each once."""
    seen = set() if seen is None else seen
    match node:
        case Array(inner) | Map(inner):
            yield from records(inner, seen)
        case Union(branches):
            for each in branches:
                yield from records(each, seen)
        case Record(_, parts) if id(node) not in seen:
            seen.add(id(node))
            yield node
            for part in parts:
                yield from records(part.type, seen)


def short(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def _field_json(part: Field, written: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": part.name, "type": to_json(part.type, written)}
    if part.default is not NO_DEFAULT:
        found["default"] = part.default
    if part.doc:
        found["doc"] = part.doc
    if part.aliases:
        found["aliases"] = list(part.aliases)
    return found


def _bare(schema: Any) -> Any:
    match schema:
        case list():
            return [_bare(each) for each in schema]
        case dict():
            return {name: _bare(value) for name, value in schema.items() if name not in _NOISE}
        case _:
            return schema


_NOISE = {"doc", "aliases", "default"}
"""Keys of a schema that say nothing about bytes."""


def _digits(node: Primitive | Fixed) -> dict[str, int]:
    return {"precision": node.precision, "scale": node.scale} if node.logical == "decimal" else {}


def _words_of_digits(node: Primitive | Fixed) -> str:
    return f" {node.precision}, {node.scale}" if node.logical == "decimal" else ""


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _aliases(schema: Mapping[str, Any], name: str) -> tuple[str, ...]:
    space = name.rpartition(".")[0]
    return tuple(_full(each, space) for each in schema.get("aliases", ()))


def _of(schema: Mapping[str, Any], key: str) -> Any:
    if key not in schema:
        raise ValueError(f"{schema.get('name') or schema!r} has no '{key}'")
    return schema[key]
