"""The Python type of a message of Protobuf, as a shape."""

from __future__ import annotations

from typing import Any

from deltaworks.serdes.protobuf.described import is_map, type_word
from deltaworks.serdes.protobuf.known_types import KNOWN, WRAPPERS
from deltaworks.serdes.shapes import (
    Again,
    Basic,
    Choice,
    Entries,
    Many,
    Number,
    Part,
    Record,
    Shape,
    optional,
)

_KNOWN: dict[str, Shape] = {
    **{name: Number() if shape is Number else shape for name, shape in KNOWN},
}
_SCALARS = {
    "double": Basic.FLOAT,
    "float": Basic.FLOAT,
    "bool": Basic.BOOLEAN,
    "string": Basic.TEXT,
    "bytes": Basic.BINARY,
}


def shape_from(descriptor: Any) -> Record:
    """The shape of a message: what its values are in Python.

    Raises:
        TypeError: Python has no type for a field; says which one.
    """
    found = _message(descriptor, (), "")
    assert isinstance(found, Record)
    return found


def _message(descriptor: Any, within: tuple[str, ...], where: str) -> Shape:
    if descriptor.full_name in within:
        return Again(descriptor.name)
    inside = (*within, descriptor.full_name)
    parts = tuple(_part(each, inside, f"{where}.{each.name}" if where else each.name) for each in descriptor.fields)
    return Record(descriptor.name, parts)


def _part(field: Any, within: tuple[str, ...], where: str) -> Part:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return Part(field.name, field.name, Entries(_one(value, within, where), _one(key, within, where)), dict)
    shape = _one(field, within, where)
    if field.is_repeated:
        return Part(field.name, field.name, Many(shape), list)
    if field.is_required:
        return Part(field.name, field.name, shape)
    if field.has_presence:
        return Part(field.name, field.name, optional(shape), lambda: None)
    default = field.default_value
    if field.enum_type is not None:
        default = field.enum_type.values_by_number[default].name
    return Part(field.name, field.name, shape, lambda: default)


def _one(field: Any, within: tuple[str, ...], where: str) -> Shape:
    if field.enum_type is not None:
        return Choice(tuple(each.name for each in field.enum_type.values), name=field.enum_type.name)
    if field.message_type is not None:
        name = field.message_type.full_name
        if name in _KNOWN:
            return _KNOWN[name]
        if name in WRAPPERS:
            return _SCALARS.get(WRAPPERS[name], Basic.INTEGER)
        if name == "google.protobuf.Any":
            raise TypeError(f"field '{where}': Python has no type for google.protobuf.Any")
        return _message(field.message_type, within, where)
    return _SCALARS.get(type_word(field).removeprefix("repeated "), Basic.INTEGER)
