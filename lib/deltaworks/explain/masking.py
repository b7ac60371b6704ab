"""Replaces secret fields of records by values that say nothing, the same ones for equal values.

A replacement is made of a keyed hash (HMAC-SHA256). Each explanation has a random key of its own, which is in memory
only. So nobody can try values out, however few there are. Keys and joins stay as they are: equal values have equal
replacements and, where the type has enough of them, different values different ones. What looks into the value may come
to another result, and then the caller says so.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.explain.tracing import InputRecord
from deltaworks.serdes.base import Serde
from deltaworks.serdes.inference import without_none
from deltaworks.serdes.json import Json
from deltaworks.topology.nodes.sources import Source
from deltaworks.topology.plan import Plan
from deltaworks.topology.secrets import ITEMS, Path, fields_of, secret_paths, type_at, written_path

_PREFIX = "masked-"
_ROUNDS = 20
"""How often another replacement is tried for a value whose first one is taken."""
_NUMBERS = 1_000_000_000
"""Replacements of numbers are below it, whatever the value, so that they say nothing of its size."""

T = TypeVar("T")


def has_secrets(pipeline: Pipeline, plan: Plan) -> bool:
    """Whether any field of any topic of a pipeline is marked."""
    return any(topic.secret for topic in pipeline.topics) or any(
        secret_paths(serde.type) for node in plan.topic_sources for serde in (node.key, node.value)
    )


@dataclass(frozen=True)
class _Marked:
    """The secret fields of a topic, as one source reads it."""

    source: Source
    key: tuple[Path, ...]
    value: tuple[Path, ...]


@dataclass
class Mask:
    """Replaces what is secret in records, and remembers it.

    Args:
        pipeline: names secret fields of topics.
        plan: has the types.
        secret: the key of the hash.
    """

    pipeline: Pipeline
    plan: Plan
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    replaced: dict[str, str] = field(default_factory=dict, repr=False)
    """Text -> its replacement."""

    def __post_init__(self) -> None:
        self._marked: dict[str, list[_Marked]] = {}
        self._taken: dict[object, bytes] = {}

    def record(self, record: InputRecord) -> InputRecord:
        """The record with replacements."""
        key, value = record.key, record.value
        for marked in self._of(record.topic):
            key = self._bytes(key, marked.source.key, marked.key)
            value = self._bytes(value, marked.source.value, marked.value)
        if (key, value) == (record.key, record.value):
            return record
        return InputRecord(
            record.topic, record.partition, record.offset, record.timestamp_ms, key, value, record.headers,
            record.batch, record.wall_ms,
        )  # fmt: skip

    def cell(self, cell: Any) -> Any:
        """A cell of a row, with replacements of texts that were secret in a record."""
        match cell:
            case str():
                return self.replaced.get(cell, cell)
            case dict():
                return {name: self.cell(each) for name, each in cell.items()}
            case list():
                return [self.cell(each) for each in cell]
            case _:
                return cell

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row, likewise."""
        return {name: self.cell(cell) for name, cell in row.items()}

    def _of(self, topic: str) -> list[_Marked]:
        if topic not in self._marked:
            named = [path for each in self.pipeline.topics if each.name == topic for path in each.secret]
            found = (self._marks(source, named) for source in self.plan.sources_of(topic))
            self._marked[topic] = [each for each in found if each.key or each.value]
        return self._marked[topic]

    def _marks(self, source: Source, named: Iterable[str]) -> _Marked:
        key, value = list(secret_paths(source.key.type)), list(secret_paths(source.value.type))
        for name in named:
            first, *rest = name.split(".")
            if first == "key":
                key.append(written_path(source.key.type, tuple(rest)))
            elif first == "value":
                value.append(written_path(source.value.type, tuple(rest)))
        return _Marked(source, tuple(dict.fromkeys(key)), tuple(dict.fromkeys(value)))

    def _bytes(self, data: bytes | None, serde: Serde[Any], paths: tuple[Path, ...]) -> bytes | None:
        if data is None or not paths:
            return data
        try:
            if isinstance(serde, Json):
                return self._json(data, serde, paths)
            value = serde.deserialize(data)
            masked = self._whole(value) if () in paths else _replaced(value, paths, self._whole)
            return serde.serialize(masked)
        except Exception:  # what does not decode may be anything, so all of it is replaced
            return self._hash(data).hex().encode()

    def _json(self, data: bytes, serde: Json[Any], paths: tuple[Path, ...]) -> bytes:
        """Only the marked parts change; fields that the type does not have stay."""
        document = json.loads(data, parse_float=Decimal)
        for path in paths:
            document = self._at(document, path, type_at(serde.type, path))
        return msgspec.json.Encoder(decimal_format="number").encode(document)

    def _at(self, document: Any, path: Path, hint: Any) -> Any:
        if not path:
            return self._part(document, hint)
        match document:
            case dict() if path[0] == ITEMS:
                return {name: self._at(each, path[1:], hint) for name, each in document.items()}
            case list() if path[0] == ITEMS:
                return [self._at(each, path[1:], hint) for each in document]
            case dict() if path[0] in document:
                return {**document, path[0]: self._at(document[path[0]], path[1:], hint)}
            case dict():
                return document
            case _:  # not of its type, so the secret may be anywhere in it
                return self._part(document, Any)

    def _part(self, document: Any, hint: Any) -> Any:
        """A part of a JSON document; its replacement has a form that the type takes, where one is known."""
        kind = without_none(hint)
        match document:
            case None:
                return None
            case dict() if known := _names(kind):
                return {
                    name if name in known else self._part(name, str): self._part(each, type_at(kind, (name,)))
                    for name, each in document.items()
                }
            case dict():
                of_key, of_value = _of_map(kind)
                return {self._part(name, of_key): self._part(each, of_value) for name, each in document.items()}
            case list():
                return [self._part(each, type_at(kind, (ITEMS,))) for each in document]
            case _ if (choices := _choices(kind)) is not None:
                return self._choice(document, choices)
            case str():
                return self._note(document, self._distinct(document.encode(), lambda digest: _text(kind, digest)))
            case _:
                return self._whole(document)

    def _whole(self, value: Any) -> Any:
        """The replacement of a value that is not part of a document."""
        data = value if isinstance(value, bytes) else str(value).encode()
        match value:
            case None:
                return None
            case bool():
                return value ^ bool(self._hash(b"bool")[0] & 1)
            case int():
                return self._distinct(data, _number)
            case float() | Decimal():
                return type(value)(self._distinct(data, _number))
            case str():
                return self._note(value, self._distinct(data, lambda digest: _text(str, digest)))
            case bytes():
                return self._note_bytes(value, self._distinct(data, lambda digest: _text(str, digest)).encode())
            case uuid.UUID():
                return self._distinct(data, _uuid)
            case datetime():
                return self._distinct(data, _moment)
            case date():
                return self._distinct(data, lambda digest: _moment(digest).date())
            case _:
                raise TypeError(f"no replacement for {type(value).__name__}")

    def _distinct(self, data: bytes, made: Callable[[bytes], T]) -> T:
        """A replacement that no other value has, as far as there are enough."""
        for number in range(_ROUNDS):
            replacement = made(self._hash(bytes([number]) + data))
            if self._taken.setdefault((type(replacement), replacement), data) == data:
                break
        return replacement

    def _choice(self, document: Any, choices: list[Any]) -> Any:
        """One of the few values of a type; which one stands for which is random."""
        mixed = sorted(choices, key=lambda choice: self._hash(repr(choice).encode()))
        if document in choices:
            return mixed[choices.index(document)]
        return mixed[int.from_bytes(self._hash(repr(document).encode())) % len(mixed)]

    def _note(self, text: str, replacement: str) -> str:
        self.replaced[text] = replacement
        return replacement

    def _note_bytes(self, data: bytes, replacement: bytes) -> bytes:
        with suppress(UnicodeDecodeError):
            self._note(data.decode(), replacement.decode())
        return replacement

    def _hash(self, data: bytes) -> bytes:
        return hmac.new(self.secret, data, hashlib.sha256).digest()


def _replaced(value: Any, paths: Iterable[Path], whole: Any) -> Any:
    """An object of a serde that is not JSON, with some of its fields replaced."""
    for path in paths:
        name, *rest = path
        if name == ITEMS or not hasattr(value, name):
            raise TypeError("only fields of objects can be replaced")
        inner = getattr(value, name)
        new = _replaced(inner, [tuple(rest)], whole) if rest else whole(inner)
        value = value._replace(**{name: new}) if hasattr(value, "_replace") else _copy(value, name, new)
    return value


def _copy(value: Any, name: str, new: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: new})
    return dataclasses.replace(value, **{name: new})


def _choices(kind: Any) -> list[Any] | None:
    """The values that a type allows, if they are few."""
    if get_origin(kind) is Literal:
        return sorted(get_args(kind), key=str)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return sorted((member.value for member in kind), key=str)
    return None


def _names(kind: Any) -> set[str]:
    """The names in JSON of the fields of a type with fields; what else is in an object may be data."""
    return {each.written for each in fields_of(kind) or ()}


def _of_map(kind: Any) -> tuple[Any, Any]:
    """The types of the keys and the values of a map."""
    arguments = get_args(kind)
    return (arguments[0], arguments[1]) if len(arguments) == 2 else (str, Any)


def _text(kind: Any, digest: bytes) -> str:
    """A text of the form that a type has in JSON."""
    if kind is Decimal or kind is int:
        return str(_number(digest))
    if kind is uuid.UUID:
        return str(_uuid(digest))
    if kind is datetime:
        return _moment(digest).isoformat()
    if kind is date:
        return _moment(digest).date().isoformat()
    if kind is bytes:
        return base64.b64encode(digest[:12]).decode()
    return _PREFIX + digest.hex()[:12]


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8]) % _NUMBERS


def _uuid(digest: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=digest[:16])


def _moment(digest: bytes) -> datetime:
    return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=int.from_bytes(digest[:4]) % 788_400_000)
