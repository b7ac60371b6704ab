"""What the bytes of a message mean, as JSON, and which messages read the bytes of which others, in words.

Fields are known by their numbers; a new name of a number changes nothing. Fields that the reader does not have are
skipped, and those that the writer does not have are empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Described = Mapping[str, Any]

_WIDER = {
    "int32": ("int64",),
    "uint32": ("uint64", "int64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
    "enum": ("int32", "int64"),
    "bool": ("int32", "int64", "uint32", "uint64"),
}
"""Types whose values are read with others as they are; all others would be cut off or mean something else."""
_SCALARS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    10: "group",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""`FieldDescriptor.TYPE_...` by number."""


def described(descriptor: Any) -> dict[str, Any]:
    """A message with all messages and enums in it."""
    types: dict[str, Any] = {}
    _describe(descriptor, types)
    return {"message": descriptor.full_name, "types": types}


def incompatibilities(writer: Described, reader: Described) -> list[str]:
    """Why bytes of one message cannot be read as another, a reason per field; empty if they can."""
    found = _Comparison(writer["types"], reader["types"]).messages(writer["message"], reader["message"], "")
    return list(dict.fromkeys(found))


def type_word(field: Any) -> str:
    """The type of a field's descriptor as a `.proto` file has it, such as `repeated shop.Item`."""
    return _words(_field(field, {}))


def is_map(field: Any) -> bool:
    """Whether a field's descriptor is that of a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _describe(descriptor: Any, types: dict[str, Any]) -> None:
    if descriptor.full_name in types:
        return
    fields: dict[str, Any] = {}
    types[descriptor.full_name] = fields
    for each in sorted(descriptor.fields, key=lambda field: field.number):
        fields[str(each.number)] = _field(each, types)


def _field(each: Any, types: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": each.name, "type": _SCALARS[each.type]}
    if is_map(each):
        key, value = (each.message_type.fields_by_name[name] for name in ("key", "value"))
        return {"name": each.name, "type": "map", "key": _field(key, types), "value": _field(value, types)}
    if each.is_repeated:
        found["repeated"] = True
    if each.is_required:
        found["required"] = True
    if each.message_type is not None:
        found["of"] = each.message_type.full_name
        _describe(each.message_type, types)
    if each.enum_type is not None:
        found["of"] = each.enum_type.full_name
        types[each.enum_type.full_name] = {str(value.number): value.name for value in each.enum_type.values}
    return found


class _Comparison:
    def __init__(self, written: Described, read: Described) -> None:
        self._written = written
        self._read = read
        self._compared: set[tuple[str, str]] = set()

    def messages(self, writer: str, reader: str, within: str) -> Iterator[str]:
        if (writer, reader) in self._compared:
            return
        self._compared.add((writer, reader))
        before = self._written[writer]
        for number, after in self._read[reader].items():
            where = f"field {number}, '{after['name']}'{within}"
            if number in before:
                yield from self.fields(before[number], after, where)
            elif after.get("required"):
                yield f"{where} is required, and not written"

    def fields(self, before: Described, after: Described, where: str) -> Iterator[str]:
        one, other = before["type"], after["type"]
        if one == other == "map":
            yield from self.fields(before["key"], after["key"], f"each key of {where}")
            yield from self.fields(before["value"], after["value"], f"each value of {where}")
        elif before.get("repeated") and not after.get("repeated"):
            yield f"{where} is written as {_words(before)}, and read as {_words(after)}"
        elif one == other == "message" or one == other == "group":
            yield from self.messages(before["of"], after["of"], f" of {where}")
        elif one == other == "enum":
            known, values = self._read[after["of"]], self._written[before["of"]]
            if gone := [name for number, name in values.items() if number not in known]:
                yield f"{where} can be {', '.join(map(repr, gone))}, which {after['of']} does not have"
        elif one != other and other not in _WIDER.get(one, ()):
            yield f"{where} is written as {_words(before)}, and read as {_words(after)}"


def _words(field: Described) -> str:
    if field["type"] == "map":
        return f"map<{_words(field['key'])}, {_words(field['value'])}>"
    return f"{'repeated ' if field.get('repeated') else ''}{field.get('of', field['type'])}"
