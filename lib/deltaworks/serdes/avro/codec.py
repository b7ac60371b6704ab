"""Avro's bytes through fastavro, one datum at a time. Nothing here is imported before the first record."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from deltaworks.errors import SerializationError
from deltaworks.serdes.avro import nodes
from deltaworks.serdes.avro.fitting import ABSENT, MARK, Fitted, without_meanings
from deltaworks.serdes.avro.names import adopted
from deltaworks.serdes.primitives import unfit, unreadable

_BROKEN = (EOFError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What fastavro and the conversions raise on bytes that are not of the schema."""


def writing(node: nodes.Node, found: Fitted, name: str) -> Callable[[Any], bytes]:
    """A function that writes values with a schema."""
    from fastavro import schemaless_writer

    schema, convert = _schema(node), found.fit.write

    def write(value: Any) -> bytes:
        out = BytesIO()
        try:
            schemaless_writer(out, schema, value if convert is None else convert(value))
        except (*_BROKEN, SerializationError) as error:
            raise unfit(value, name, error) from error
        return out.getvalue()

    return write


def reading(writer: nodes.Node, found: Fitted, name: str) -> Callable[[bytes], Any]:
    """A function that reads what was written with `writer`, with the schema of the type.

    The schemas are compatible, as `changes.incompatibilities` says.
    """
    from fastavro import schemaless_reader
    from fastavro.read import SchemaResolutionError

    reader = adopted(found.fit.reader, writer)
    same = nodes.canonical(without_meanings(writer)) == nodes.canonical(without_meanings(reader))
    writing_schema, reading_schema = _schema(writer), None if same else _schema(reader)
    convert, named, broken = found.fit.read, found.named, (*_BROKEN, SchemaResolutionError)

    def read(data: bytes) -> Any:
        file = BytesIO(data)
        try:
            value = schemaless_reader(file, writing_schema, reading_schema, named)
            if file.tell() != len(data):
                raise ValueError(f"the value ends after {file.tell()}")
            return value if convert is None else convert(value)
        except broken as error:
            raise unreadable(data, name, _words(error)) from error

    return read


def _words(error: Exception) -> str:
    return "they end too early" if isinstance(error, EOFError) else str(error) or type(error).__name__


def _schema(node: nodes.Node) -> Any:
    """A schema as fastavro wants it. It checks defaults, so those that are no JSON are set afterwards."""
    from fastavro import parse_schema

    found = parse_schema(_marked(nodes.to_json(without_meanings(node))))
    _set_absent(found)
    return found


def _marked(schema: Any) -> Any:
    match schema:
        case list():
            return [_marked(each) for each in schema]
        case {"default": default, **rest} if default is ABSENT:
            return {**{name: _marked(value) for name, value in rest.items()}, MARK: True}
        case dict():
            return {name: value if name == "default" else _marked(value) for name, value in schema.items()}
        case _:
            return schema


def _set_absent(schema: Any) -> None:
    if isinstance(schema, list):
        for each in schema:
            _set_absent(each)
    elif isinstance(schema, dict):
        for part in schema.get("fields", ()):
            if part.get(MARK):
                part["default"] = ABSENT
            _set_absent(part["type"])
        for inner in ("items", "values", "type"):
            if not isinstance(schema.get(inner), str | None):
                _set_absent(schema[inner])
