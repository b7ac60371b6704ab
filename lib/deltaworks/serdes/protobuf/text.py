"""The text of a `.proto` file, from its descriptor: what registries take from every client.

A compiler makes an equal descriptor of the text, with its messages in the same places. What names of the file mean is
written out (`.shop.Order`), so the text does not depend on where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_OPTIONAL, _REPEATED = 1, 3
"""`FieldDescriptorProto.LABEL_...` by number."""
_GROUP, _STRING, _BYTES, _MESSAGE, _ENUM = 10, 9, 12, 11, 14
"""`FieldDescriptorProto.TYPE_...` by number."""
_LAST_NUMBER = 2**29 - 1
_LAST_VALUE = 2**31 - 1
_INDENT = "  "


def text_of(file: Any) -> str | None:
    """The text; None: the file has what this cannot write, such as options of its own, extensions, groups or editions.

    Args:
        file: a `FileDescriptorProto`.
    """
    try:
        return "\n".join(_file(file)) + "\n"
    except _UnwritableError:
        return None


class _UnwritableError(Exception):
    """Something of the file has no text here."""


def _file(file: Any) -> Iterator[str]:
    if file.syntax not in ("", "proto2", "proto3") or file.extension:
        raise _UnwritableError
    yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    for at, name in enumerate(file.dependency):
        kind = "public " if at in file.public_dependency else "weak " if at in file.weak_dependency else ""
        yield f"import {kind}{_quoted(name)};"
    yield from _option_lines(file.options)
    for each in file.message_type:
        yield from _message(each, file.syntax)
    for each in file.enum_type:
        yield from _enum(each)
    for each in file.service:
        yield from _service(each)


def _message(message: Any, syntax: str) -> Iterator[str]:
    if message.extension:
        raise _UnwritableError
    yield f"message {message.name} {{"
    for line in _in_message(message, syntax):
        yield _INDENT + line
    yield "}"


def _in_message(message: Any, syntax: str) -> Iterator[str]:
    yield from _option_lines(message.options)
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    fields = _fields(message, entries, syntax)
    for each in message.nested_type:
        if each.name in entries:  # the compiler puts it where its field is, and messages are known by their places
            yield from _until(fields, each.name)
        else:
            yield from _message(each, syntax)
    for _, lines in fields:
        yield from lines
    for each in message.enum_type:
        yield from _enum(each)
    for each in message.extension_range:
        if each.HasField("options"):
            raise _UnwritableError
        yield f"extensions {_range(each.start, each.end - 1, _LAST_NUMBER)};"
    yield from _reserved([_range(each.start, each.end - 1, _LAST_NUMBER) for each in message.reserved_range], message)


def _fields(message: Any, entries: dict[str, Any], syntax: str) -> Iterator[tuple[str, list[str]]]:
    """The name of a map's entry, or nothing, and the lines of a field or of a whole `oneof`."""
    written = set()
    for each in message.field:
        if each.HasField("oneof_index") and not each.proto3_optional:
            if each.oneof_index in written:
                continue
            written.add(each.oneof_index)
            among = [other for other in message.field if other.HasField("oneof_index")]
            inner = [_field(other, "") for other in among if other.oneof_index == each.oneof_index]
            oneof = message.oneof_decl[each.oneof_index]
            lines = [*_option_lines(oneof.options), *inner]
            yield "", [f"oneof {oneof.name} {{", *(_INDENT + line for line in lines), "}"]
        else:
            entry = each.type_name.rpartition(".")[2] if each.type == _MESSAGE else ""
            if entry in entries:
                key, value = (_type(inner) for inner in entries[entry].field)
                yield entry, [_field(each, f"map<{key}, {value}>", is_map=True)]
            else:
                yield "", [_field(each, _label(each, syntax))]


def _until(fields: Iterator[tuple[str, list[str]]], entry: str) -> Iterator[str]:
    for name, lines in fields:
        yield from lines
        if name == entry:
            return


def _label(field: Any, syntax: str) -> str:
    if field.label == _OPTIONAL:
        return "optional " if field.proto3_optional or syntax != "proto3" else ""
    return "repeated " if field.label == _REPEATED else "required "


def _field(field: Any, before: str, *, is_map: bool = False) -> str:
    options = list(_options(field.options))
    if field.HasField("default_value"):
        options.insert(0, f"default = {_default(field)}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {_quoted(field.json_name)}")
    kind = before if is_map else f"{before}{_type(field)}"
    return f"{kind} {field.name} = {field.number}{_listed(options)};"


def _type(field: Any) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if field.type == _GROUP:
        raise _UnwritableError
    if field.type in (_MESSAGE, _ENUM):
        return str(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _default(field: Any) -> str:
    if field.type == _STRING:
        return _quoted(field.default_value)
    return f'"{field.default_value}"' if field.type == _BYTES else str(field.default_value)


def _enum(enum: Any) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    for line in _option_lines(enum.options):
        yield _INDENT + line
    for each in enum.value:
        yield f"{_INDENT}{each.name} = {each.number}{_listed(list(_options(each.options)))};"
    for line in _reserved([_range(each.start, each.end, _LAST_VALUE) for each in enum.reserved_range], enum):
        yield _INDENT + line
    yield "}"


def _service(service: Any) -> Iterator[str]:
    yield f"service {service.name} {{"
    for line in _option_lines(service.options):
        yield _INDENT + line
    for each in service.method:
        asked = f"{'stream ' if each.client_streaming else ''}{each.input_type}"
        told = f"{'stream ' if each.server_streaming else ''}{each.output_type}"
        yield f"{_INDENT}rpc {each.name} ({asked}) returns ({told}){' {' if each.HasField('options') else ';'}"
        if each.HasField("options"):
            for line in _option_lines(each.options):
                yield _INDENT * 2 + line
            yield f"{_INDENT}}}"
    yield "}"


def _range(first: int, last: int, end: int) -> str:
    return str(first) if first == last else f"{first} to {'max' if last == end else last}"


def _reserved(ranges: Sequence[str], of: Any) -> Iterator[str]:
    if ranges:
        yield f"reserved {', '.join(ranges)};"
    if of.reserved_name:
        yield f"reserved {', '.join(map(_quoted, of.reserved_name))};"


def _option_lines(options: Any) -> Iterator[str]:
    for each in _options(options):
        yield f"option {each};"


def _listed(options: Sequence[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _options(options: Any) -> Iterator[str]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    if len(UnknownFieldSet(options)):
        raise _UnwritableError
    for found, value in options.ListFields():
        if found.message_type is not None or found.is_extension or found.is_repeated:
            raise _UnwritableError
        if found.enum_type is not None:
            yield f"{found.name} = {found.enum_type.values_by_number[value].name}"
        elif isinstance(value, bool):
            yield f"{found.name} = {str(value).lower()}"
        else:
            yield f"{found.name} = {_quoted(value)}"


def _quoted(text: str) -> str:
    from google.protobuf.text_encoding import CEscape

    return f'"{CEscape(text.encode(), as_utf8=False)}"'


def _json_name(name: str) -> str:
    """As the compiler makes it: the letter behind an underscore is a capital."""
    first, *others = name.split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in others)
