"""Which fields of keys and values are secret: their author says so, in their type or for a topic."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union

import msgspec

Path = tuple[str, ...]
"""Names of fields, from the outside in; `*` stands for every item of a list or a map."""
ITEMS = "*"


@dataclass(frozen=True)
class Secret:
    """Marks a field as secret: `email: Annotated[str, Secret()]`.

    `deltaworks explain` shows and writes a replacement in its place. Streams, topics and tables have it as it is.
    """


@dataclass(frozen=True)
class Field:
    """A field of an object."""

    name: str
    written: str
    """Its name in JSON."""
    hint: Any


def is_secret(kind: Any) -> bool:
    """Whether a type is marked, or has a marked field."""
    return bool(secret_paths(kind))


def secret_paths(kind: Any) -> tuple[Path, ...]:
    """The marked fields of a type, by their names in JSON; `()` is the whole."""
    return tuple(dict.fromkeys(_paths(kind, ())))


def has_path(kind: Any, path: Path) -> bool:
    """Whether a type has a field at a path of names in Python."""
    if not path:
        return True
    return any(
        field.name == path[0] and has_path(field.hint, path[1:])
        for part in _objects(kind)
        for field in fields_of(part) or ()
    )


def written_path(kind: Any, path: Path) -> Path:
    """A path of names in Python as one of names in JSON, with `ITEMS` for the lists and maps on the way."""
    if not path:
        return ()
    inner = _items(kind)
    if inner is not None:
        return (ITEMS, *written_path(inner, path))
    for part in _members(kind):
        for field in fields_of(part) or ():
            if field.name == path[0]:
                return (field.written, *written_path(field.hint, path[1:]))
        if (inner := _items(part)) is not None and has_path(inner, path):
            return (ITEMS, *written_path(inner, path))
    return path


def type_at(kind: Any, path: Path) -> Any:
    """The type at a path of names in JSON; `Any` if the path leads nowhere."""
    for name in path:
        if name == ITEMS:
            inner = next((found for part in _members(kind) if (found := _items(part)) is not None), None)
            kind = Any if inner is None else inner
            continue
        fields = [each for part in _objects(kind) for each in fields_of(part) or () if each.written == name]
        if not fields:
            return Any
        kind = fields[0].hint
    return kind


def fields_of(kind: Any) -> list[Field] | None:
    """The fields of a Struct, dataclass, NamedTuple or TypedDict; None for any other type."""
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type):
        return None
    if issubclass(kind, msgspec.Struct):
        names = list(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    elif dataclasses.is_dataclass(kind):
        names = [(field.name, field.name) for field in dataclasses.fields(kind)]
    elif (issubclass(kind, tuple) and hasattr(kind, "_fields")) or typing.is_typeddict(kind):
        names = [(name, name) for name in getattr(kind, "_fields", None) or kind.__annotations__]
    else:
        return None
    hints = typing.get_type_hints(kind, include_extras=True)
    return [Field(name, written, hints.get(name, Any)) for name, written in names]


def _paths(kind: Any, within: tuple[Any, ...]) -> Iterator[Path]:
    if typing.get_origin(kind) is Annotated and any(isinstance(each, Secret) for each in typing.get_args(kind)[1:]):
        yield ()
        return
    for part in _members(kind):
        if part is not kind:
            yield from _paths(part, within)
        elif (inner := _items(part)) is not None:
            yield from ((ITEMS, *path) for path in _paths(inner, within))
        elif part not in within:
            for field in fields_of(part) or ():
                yield from ((field.written, *path) for path in _paths(field.hint, (*within, part)))


def _members(kind: Any) -> list[Any]:
    """The types that a type stands for."""
    if typing.get_origin(kind) is Annotated:
        return [typing.get_args(kind)[0]]
    if (supertype := getattr(kind, "__supertype__", None)) is not None:
        return [supertype]
    if typing.get_origin(kind) in (Union, types.UnionType):
        return list(typing.get_args(kind))
    return [kind]


def _items(kind: Any) -> Any | None:
    """The type of the items of a list, set, tuple or of the values of a map; None: it has none."""
    arguments = [each for each in typing.get_args(kind) if each is not Ellipsis]
    origin = typing.get_origin(kind)
    if not isinstance(origin, type) or origin in (Annotated, Union, types.UnionType) or not arguments:
        return None
    return None if fields_of(kind) is not None else arguments[-1]


def _objects(kind: Any) -> Iterator[Any]:
    """The types with fields that a type holds, through lists, maps and unions."""
    for part in _members(kind):
        if part is not kind:
            yield from _objects(part)
        elif (inner := _items(part)) is not None:
            yield from _objects(inner)
        else:
            yield part
