"""Python source of the types of a schema: a Struct for each record, with its docs and defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltaworks.serdes.avro import nodes as avro
from deltaworks.serdes.avro.to_shape import shape_from as shape_of_avro
from deltaworks.serdes.made_types import python_name
from deltaworks.serdes.protobuf.descriptors import by_name, descriptors
from deltaworks.serdes.protobuf.to_shape import shape_from as shape_of_message
from deltaworks.serdes.schemas import Kind, WriterSchema
from deltaworks.serdes.shapes import Again, Basic, Choice, Entries, Many, Number, OneOf, Part, Record, Shape

_WIDTH = 120
_NAMES = {
    Basic.TEXT: "str",
    Basic.INTEGER: "int",
    Basic.FLOAT: "float",
    Basic.BOOLEAN: "bool",
    Basic.BINARY: "bytes",
    Basic.INSTANT: "dt.datetime",
    Basic.LOCAL: "Annotated[dt.datetime, msgspec.Meta(tz=False)]",
    Basic.DATE: "dt.date",
    Basic.TIME: "dt.time",
    Basic.DURATION: "dt.timedelta",
    Basic.UUID: "UUID",
    Basic.ANYTHING: "Any",
    Basic.NOTHING: "None",
}
_TAKEN = {
    "str",
    "int",
    "float",
    "bool",
    "bytes",
    "list",
    "dict",
    "dt",
    "UUID",
    "Decimal",
    "Any",
    "Annotated",
    "Literal",
}
_TAKEN |= {"DecimalDigits", "msgspec"}
"""Names of types, which a field cannot have beside them."""
_IMPORTS = (
    ("decimal", ("Decimal",)),
    ("typing", ("Annotated", "Any", "Literal")),
    ("uuid", ("UUID",)),
)


def generate(schema: WriterSchema | avro.Source, *, kind: Kind = "AVRO", message: str | None = None) -> str:
    """Python source of a schema's types, as `ruff format` leaves it and `mypy --strict` accepts it.

    Args:
        schema: of a registry; or an Avro schema, a `.proto` file, or either's text.
        kind: what it is, if it is neither of a registry nor a `.proto` file.
        message: of Protobuf, the full name; None: the only message at the top.

    Raises:
        TypeError: Python has no type for a field; says which one.
        ValueError: the schema is none, or has no record.
    """
    if isinstance(schema, Path) and schema.suffix == ".proto":
        kind = "PROTOBUF"
    shape = _shape(schema, schema.kind if isinstance(schema, WriterSchema) else kind, message)
    if isinstance(shape, Record):
        return _Module(shape).text()
    raise ValueError("the schema has no record at its top, so its type needs no class")


def _shape(schema: Any, kind: Kind, message: str | None) -> Shape:
    match kind:
        case "AVRO":
            if isinstance(schema, WriterSchema):
                return shape_of_avro(avro.parsed(schema.text, schema.referred))
            return shape_of_avro(avro.parsed(schema))
        case "PROTOBUF":
            if isinstance(schema, WriterSchema):
                return shape_of_message(by_name(schema, message).descriptor)
            return shape_of_message(descriptors(schema, message).descriptor)
        case "JSON":
            raise TypeError("types are generated of Avro and Protobuf")


class _Module:
    """The source of a record and all that is in it, each class before those that need it."""

    def __init__(self, top: Record) -> None:
        self._top = top
        self._records: dict[str, Record] = {}
        self._choices: dict[str, Choice] = {}
        self._collect(top)

    def text(self) -> str:
        choices = [self._choice(name, each) for name, each in self._choices.items()]
        classes = [self._class(each) for each in self._records.values()]
        body = "\n\n\n".join([*(["\n".join(choices)] if choices else []), *classes])
        return f"{self._head(body)}\n\n{'' if choices else chr(10)}{body}\n"

    def _collect(self, shape: Shape) -> None:
        match shape:
            case Record(name, parts):
                if name in self._records and self._records[name] != shape and not _inside_itself(shape):
                    raise TypeError(f"there are two records called '{name}'")
                for part in parts:
                    self._collect(part.shape)
                self._records.setdefault(name, shape)
            case Choice(_, _, name) if name is not None:
                self._choices.setdefault(name, shape)
            case Many(item):
                self._collect(item)
            case Entries(value, key):
                self._collect(value)
                self._collect(key)
            case OneOf(members):
                for each in members:
                    self._collect(each)
            case _:
                pass

    def _head(self, body: str) -> str:
        lines = [
            f'"""Types of the schema of `{self._top.name}`; generated."""',
            "",
            "from __future__ import annotations",
            "",
        ]
        if _uses(body, "dt"):
            lines.append("import datetime as dt")
        for module, names in _IMPORTS:
            if used := [name for name in names if _uses(body, name)]:
                lines.append(f"from {module} import {', '.join(used)}")
        if lines[-1]:
            lines.append("")
        lines.append("import msgspec")
        if _uses(body, "DecimalDigits"):
            lines += ["", "from deltaworks import DecimalDigits"]
        return "\n".join(lines)

    def _choice(self, name: str, shape: Choice) -> str:
        line = f"{python_name(name)} = Literal[{', '.join(map(_literal, shape.values))}]"
        if len(line) > _WIDTH:
            line = (
                f"{python_name(name)} = Literal[\n" + "".join(f"    {_literal(each)},\n" for each in shape.values) + "]"
            )
        return line + (f"\n{_doc(shape.doc, '')}" if shape.doc else "")

    def _class(self, record: Record) -> str:
        options = ["frozen=True", "kw_only=True", *(["tag=True"] if record.tagged else [])]
        renamed = {self._name(each): each.written for each in record.parts}
        renamed = {name: written for name, written in renamed.items() if name != written}
        if renamed:
            options.append(f"rename={_literal(renamed)}")
        lines = [
            *_head_of_class(python_name(record.name), ["msgspec.Struct", *options]),
            _doc(record.doc or f"A record `{record.name}`.", "    "),
        ]
        if record.parts:
            lines.append("")
        for part in record.parts:
            lines += self._field(part)
        return "\n".join(lines)

    def _field(self, part: Part) -> Iterator[str]:
        name, kind = self._name(part), self._type(part.shape)
        default = "" if part.default is None else f" = {_default(part.default())}"
        line = f"    {name}: {kind}{default}"
        yield line
        if part.doc:
            yield _doc(part.doc, "    ")

    def _name(self, part: Part) -> str:
        name = python_name(part.name)
        return f"{name}_" if name in _TAKEN or name in self._records or name in self._choices else name

    def _type(self, shape: Shape) -> str:
        match shape:
            case Basic():
                return _NAMES[shape]
            case Number(None):
                return "Decimal"
            case Number(digits) if digits is not None:
                return f"Annotated[Decimal, DecimalDigits({digits.precision}, {digits.scale})]"
            case Choice(values, _, name):
                return f"Literal[{', '.join(map(_literal, values))}]" if name is None else python_name(name)
            case Many(item, kind):
                return f"{kind.__name__}[{self._type(item)}{', ...' if kind is tuple else ''}]"
            case Entries(value, key):
                return f"dict[{self._type(key)}, {self._type(value)}]"
            case OneOf(members):
                return " | ".join(map(self._type, members))
            case Record(name) | Again(name):
                return python_name(name)
            case _:
                raise TypeError(f"there is no source of {shape!r}")


def _head_of_class(name: str, bases: list[str]) -> list[str]:
    line = f"class {name}({', '.join(bases)}):"
    if len(line) <= _WIDTH:
        return [line]
    inside = f"    {', '.join(bases)}"
    return [f"class {name}(", *([inside] if len(inside) <= _WIDTH else [f"    {each}," for each in bases]), "):"]


def _inside_itself(shape: Record) -> bool:
    """Whether a record is inside itself, so that its shape depends on where it is met first."""
    left: list[Shape] = [part.shape for part in shape.parts]
    while left:
        match left.pop():
            case Again():
                return True
            case Record(_, parts):
                left += [part.shape for part in parts]
            case Many(item) | Entries(item):
                left.append(item)
            case OneOf(members):
                left += members
            case _:
                pass
    return False


def _default(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"msgspec.field(default_factory={type(value).__name__})"
    if (isinstance(value, float) and value != value) or value in (float("inf"), -float("inf")):
        return f'float("{value}")'
    return _literal(value)


def _literal(value: Any) -> str:
    """Source with double quotes, unless single ones need fewer escapes."""
    match value:
        case str():
            fewer = value.count('"') > value.count("'")
            return repr(value) if fewer else json.dumps(value, ensure_ascii=False)
        case bytes():
            body = repr(value)[2:-1]
            return f'b"{body}"' if '"' not in body else repr(value)
        case dict():
            return "{" + ", ".join(f"{_literal(name)}: {_literal(each)}" for name, each in value.items()) + "}"
        case Decimal():
            return f'Decimal("{value}")'
        case _:
            return repr(value)


def _doc(text: str, indent: str) -> str:
    words = " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")
    words = words + " " if words.endswith('"') else words
    return f'{indent}"""{words}"""'


_TEXTS = re.compile(r'"""[^\n]*"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
"""Docstrings and other texts of a source."""


def _uses(body: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", _TEXTS.sub("", body)) is not None
