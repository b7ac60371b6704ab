"""The meaning of a serde's bytes as a text, and whether bytes of one meaning can be read with another.

The text is kept with the state of every store, so that a value is never misread. Some changes need no action of the
user: JSON whose type got a field with a default, lost a field, may be null now, or has a float where there was an
integer. Every other change is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from deltaworks.serdes.avro.nodes import parsed, words
from deltaworks.serdes.base import Serde, is_serde
from deltaworks.serdes.json import Json
from deltaworks.serdes.protobuf import described as protobuf

Schema = Mapping[str, Any]

_NOISE = {"title", "description", "examples", "default", "deprecated", "discriminator", "$defs"}
"""Keys of a JSON Schema that say nothing about bytes."""
_STRUCTURE = {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "enum"}
_STRUCTURE |= {"minItems", "maxItems"}


def schema_of(serde: Serde[Any]) -> str:
    """The meaning of a serde's bytes as canonical JSON: equal texts, equal meaning."""
    return json.dumps(_schema(serde), sort_keys=True, separators=(",", ":"))


def breaking_changes(old: str, new: str) -> list[str]:
    """Why bytes of an old meaning cannot be read with a new one, in words; empty if they can."""
    if old == new:
        return []
    return list(_serde_changes(json.loads(old), json.loads(new)))


def in_words(schema: str) -> str:
    """A short form of the result of `schema_of`."""
    return _serde_words(json.loads(schema))


def json_changes(old: Schema, new: Schema, *, as_text: bool = False) -> list[str]:
    """Why values of one JSON Schema cannot be read with another, both as msgspec makes them, in words.

    Args:
        old: with which they were written.
        new: with which they are read.
        as_text: a string without a format takes those of any format, and of any enum: what matters is that it can be
            read, not that it is the same value in Python.
    """
    return list(_Changes(old.get("$defs", {}), new.get("$defs", {}), as_text=as_text).of(old, new, "the value"))


def _schema(serde: Serde[Any]) -> dict[str, Any]:
    if isinstance(serde, Json):
        return {"json": serde.schema(), "decimals": serde.decimals}
    if (meaning := getattr(serde, "meaning", None)) is not None:
        return dict(meaning)
    name, parts = serde.name, _inner_serdes(serde)
    for part in parts:
        name = name.replace(part.name, "*", 1)
    return {"name": name, "parts": [_schema(part) for part in parts]}


def _inner_serdes(serde: Any) -> list[Serde[Any]]:
    if not is_dataclass(serde):
        return []
    values = [getattr(serde, field.name) for field in fields(serde)]
    return [value for value in values if is_serde(value)]


def _serde_changes(old: Schema, new: Schema) -> Iterator[str]:
    match old, new:
        case {"json": before}, {"json": after}:
            yield from json_changes(before, after)
        case {"format": "packed", "schema": before}, {"format": "packed", "schema": after}:
            yield from json_changes(before, after)
        case {"format": "protobuf", "schema": before, **rest}, {"format": "protobuf", "schema": after, **others}:
            if rest != others:
                yield f"it was {_serde_words(old)}, is {_serde_words(new)}"
            else:
                yield from protobuf.incompatibilities(before, after)
        case {"format": "avro", "schema": before}, {"format": "avro", "schema": after}:
            if before != after:
                yield "its Avro schema has changed, and its bytes do not say which schema wrote them"
            elif old != new:
                yield f"it was {_serde_words(old)}, is {_serde_words(new)}"
        case {"name": before, "parts": inside}, {"name": after, "parts": outside} if before == after:
            for one, other in zip(inside, outside, strict=True):
                yield from _serde_changes(one, other)
        case _:
            yield f"it was {_serde_words(old)}, is {_serde_words(new)}"


class _Changes:
    """Compares two JSON Schemas as msgspec makes them."""

    def __init__(self, old_types: Schema, new_types: Schema, *, as_text: bool) -> None:
        self._old_types = old_types
        self._new_types = new_types
        self._as_text = as_text
        self._compared: set[tuple[str, str]] = set()
        """Pairs of named types already compared, so that the comparison of recursive types ends."""

    def of(self, old: Schema, new: Schema, where: str) -> Iterator[str]:
        if "$ref" in old and "$ref" in new:
            pair = old["$ref"], new["$ref"]
            if pair in self._compared:
                return
            self._compared.add(pair)
        before, after = _resolved(old, self._old_types), _resolved(new, self._new_types)
        if "anyOf" in before or "anyOf" in after:
            yield from self._alternatives(before, after, where)
        elif not after:
            # Anything.
            return
        elif "enum" in before and "enum" in after:
            if gone := [repr(each) for each in before["enum"] if each not in after["enum"]]:
                yield f"{where} can no longer be {', '.join(gone)}"
        elif self._as_text and "enum" in before and after == {"type": "string"}:
            if others := [repr(each) for each in before["enum"] if not isinstance(each, str)]:
                yield f"{where} can be {', '.join(others)}, and is string now"
        elif before.get("type") != after.get("type") or ("enum" in before) != ("enum" in after):
            if (before.get("type"), after.get("type")) != ("integer", "number"):
                yield f"{where} was {_words(before)}, is {_words(after)}"
        else:
            yield from self._constraints(before, after, where)
            yield from self._fields(before, after, where)
            yield from self._items(before, after, where)

    def _alternatives(self, old: Schema, new: Schema, where: str) -> Iterator[str]:
        for before in old.get("anyOf", [old]):
            if not any(self._fits(before, after) for after in new.get("anyOf", [new])):
                yield f"{where} was {_words(old)}, is {_words(new)}"
                return

    def _fits(self, old: Schema, new: Schema) -> bool:
        compared = set(self._compared)
        if not list(self.of(old, new, "")):
            return True
        self._compared = compared
        return False

    def _constraints(self, old: Schema, new: Schema, where: str) -> Iterator[str]:
        for name in sorted(new.keys() - _STRUCTURE):
            if old.get(name) != new[name]:
                yield f"{where} has {name} {new[name]!r} now"
        if not self._as_text and {"format", "contentEncoding"} & (old.keys() - new.keys()):
            yield f"{where} was {_words(old)}, is {_words(new)}"

    def _fields(self, old: Schema, new: Schema, where: str) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in sorted(after):
            if name in before:
                if name in new.get("required", ()) and name not in old.get("required", ()):
                    yield f"field '{name}' had a default and has none now"
                yield from self.of(before[name], after[name], f"field '{name}'")
            elif name in new.get("required", ()):
                yield f"field '{name}' is new and has no default"
        others = new.get("additionalProperties", True)
        if others is False:
            for name in sorted(before.keys() - after.keys()):
                yield f"field '{name}' is gone, and the type forbids fields that it does not know"
        elif isinstance(others, dict):
            known = old.get("additionalProperties", {})
            yield from self.of(known if isinstance(known, dict) else {}, others, f"entries of {where}")

    def _items(self, old: Schema, new: Schema, where: str) -> Iterator[str]:
        if old.get("type") != "array":
            return
        before, after = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(before) > len(after) or len(before) < new.get("minItems", 0) or bool(before) != bool(after):
            yield f"{where} was {_words(old)}, is {_words(new)}"
            return
        for position, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from self.of(one, other, f"{where}[{position}]")
        if isinstance(new.get("items"), dict):
            yield from self.of(old.get("items", {}), new["items"], f"each item of {where}")


def _resolved(schema: Schema, types: Schema) -> Schema:
    while "$ref" in schema:
        schema = types[schema["$ref"].rpartition("/")[2]]
    return {name: value for name, value in schema.items() if name not in _NOISE}


def _words(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(map(_words, schema["anyOf"]))
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    extra = schema.get("format") or schema.get("contentEncoding")
    if schema.get("prefixItems"):
        extra = f"{len(schema['prefixItems'])} items"
    return f"{schema.get('type', 'anything')}{f' ({extra})' if extra else ''}"


def _words_of_format(schema: Schema) -> str:
    match schema["format"]:
        case "avro":
            return words(parsed(schema["schema"]))
        case "protobuf":
            return str(schema["schema"]["message"])
        case _:
            return _words(schema["schema"])


def _serde_words(schema: Schema) -> str:
    if "json" in schema:
        return f"json({_words(schema['json'])})"
    if "format" in schema:
        header = " with the id of its schema" if schema.get("registry") else ""
        return f"{schema['format']}({_words_of_format(schema)}){header}"
    name = str(schema["name"])
    for part in schema["parts"]:
        name = name.replace("*", _serde_words(part), 1)
    return name
