"""The schemas behind records that name theirs by a number, as Confluent's serializers write them: `Schemas`.

A serde is made when a job is imported, where no settings are, and travels to executors. So it does not know a registry:
who runs it binds it (`bound`). One that nobody has bound uses a registry in the memory of its process, as in a test.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from deltaworks.errors import ConfigurationError, SerializationError
from deltaworks.serdes.base import Serde, is_serde

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
SubjectStrategy = Literal["topic", "record", "topic-record"]
"""What a schema is registered under: `TopicNameStrategy`, `RecordNameStrategy` or `TopicRecordNameStrategy`."""

T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """A schema that another one refers to."""

    name: str
    """What the other one calls it: the full name of an Avro type, the path of a `.proto` file, a JSON URI."""
    schema: WriterSchema
    subject: str | None = None
    """What it is registered under; None: its name."""
    version: int | None = None


@dataclass(frozen=True)
class WriterSchema:
    """The schema that a record was written with."""

    text: str
    """JSON of Avro and JSON Schema; of Protobuf a `.proto` file, or its `FileDescriptorProto` in base64."""
    kind: Kind
    references: tuple[Reference, ...] = ()

    @property
    def referred(self) -> dict[str, str]:
        """Name -> text of all schemas that it refers to, each behind those that it refers to itself."""
        found: dict[str, str] = {}
        for each in self.references:
            found |= {**each.schema.referred, each.name: each.schema.text}
        return found

    @property
    def fingerprint(self) -> str:
        """A short text that two schemas share only if they are the same."""
        parts = [self.kind, _plain(self.text), *(f"{each.name} {each.schema.fingerprint}" for each in self.references)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Registered:
    """A version of a subject."""

    id: int
    schema: WriterSchema
    version: int


class Schemas(Protocol):
    """Where schemas are registered. Ids never change their meaning, so each is asked for once per process."""

    def by_id(self, number: int) -> WriterSchema:
        """The schema with an id.

        Raises:
            SerializationError: there is none.
            SchemasUnavailableError: the registry does not answer.
        """

    def id_of(self, subject: str, schema: WriterSchema) -> int:
        """The id of a schema under a subject, where it is registered if it is not yet.

        Raises:
            ConflictError: the registry refuses it, because it is not compatible with the others of the subject.
            SchemasUnavailableError: the registry does not answer.
        """

    def versions(self, subject: str) -> list[Registered]:
        """All versions of a subject, oldest first; empty: there is no such subject.

        Raises:
            SchemasUnavailableError: the registry does not answer.
        """

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        """Why `id_of` would be refused, in words; None: it would not.

        Raises:
            SchemasUnavailableError: the registry does not answer.
        """


class InMemory:
    """A registry in memory, for tests: the same schema has the same id under all subjects, as in Confluent's.

    >>> schemas = InMemory()
    >>> schemas.id_of("orders-value", WriterSchema('"long"', "AVRO"))
    1
    >>> schemas.id_of("others-value", WriterSchema('"long"', "AVRO"))
    1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._schemas: list[WriterSchema] = []
        self._ids: dict[str, int] = {}
        self._subjects: dict[str, list[int]] = {}

    def by_id(self, number: int) -> WriterSchema:
        """The schema; raises `SerializationError` if there is none."""
        if not 1 <= number <= len(self._schemas):
            raise unknown(number, "the registry in memory")
        return self._schemas[number - 1]

    def id_of(self, subject: str, schema: WriterSchema) -> int:
        """The id, from 1 on."""
        with self._lock:
            if schema.fingerprint not in self._ids:
                self._schemas.append(schema)
                self._ids[schema.fingerprint] = len(self._schemas)
            number = self._ids[schema.fingerprint]
            versions = self._subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def versions(self, subject: str) -> list[Registered]:
        """In the order in which they were registered."""
        numbers = self._subjects.get(subject, [])
        return [Registered(each, self._schemas[each - 1], version) for version, each in enumerate(numbers, 1)]

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        """None: it takes all schemas."""
        return None

    def subjects(self) -> list[str]:
        """All subjects, sorted."""
        return sorted(self._subjects)


class NoRegistry:
    """`Schemas` of a project that has not said where its registry is: whatever is asked is an error that says so.

    A host binds serdes to it rather than not at all, because ids of a registry in memory mean nothing to others.
    """

    def by_id(self, number: int) -> WriterSchema:
        """Raises `ConfigurationError`."""
        raise _not_configured(f"a record names schema {number}")

    def id_of(self, subject: str, schema: WriterSchema) -> int:
        """Raises `ConfigurationError`."""
        raise _not_configured(f"a schema is to be registered under '{subject}'")

    def versions(self, subject: str) -> list[Registered]:
        """Raises `ConfigurationError`."""
        raise _not_configured(f"subject '{subject}' is asked for")

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        """Raises `ConfigurationError`."""
        raise _not_configured(f"a schema is to be registered under '{subject}'")


OF_THIS_PROCESS = InMemory()
"""The registry of serdes that nobody has bound."""


@dataclass(frozen=True)
class Binding:
    """What a serde is told about its registry and about where its records are."""

    schemas: Schemas = field(default_factory=lambda: OF_THIS_PROCESS)
    topic: str | None = None
    is_key: bool = False

    def subject(self, strategy: SubjectStrategy, record: str) -> str:
        """What a schema is registered under; without a topic, its record's name."""
        match strategy:
            case "topic" if self.topic is not None:
                return f"{self.topic}-{'key' if self.is_key else 'value'}"
            case "topic-record" if self.topic is not None:
                return f"{self.topic}-{record}"
            case _:
                return record


@runtime_checkable
class Bindable(Protocol):
    """A serde whose records name their schema."""

    def bind(self, schemas: Schemas, topic: str | None, is_key: bool) -> Serde[Any]:
        """The same serde with a registry."""


def bound(serde: Serde[T], schemas: Schemas, topic: str | None, *, is_key: bool) -> Serde[T]:
    """A serde, and all serdes inside it, with the registry that its records name their schemas in.

    Args:
        serde: of a topic's keys or values; it is not changed.
        schemas: the registry.
        topic: the topic, for the names of subjects.
        is_key: they are keys.
    """

    def bind(each: Any) -> Any:
        return each.bind(schemas, topic, is_key) if isinstance(each, Bindable) else each

    return changed(serde, bind)


def changed(serde: Serde[T], change: Callable[[Any], Any]) -> Serde[T]:
    """A serde with all serdes inside it, and itself, replaced by what `change` makes of them."""
    found: Any = serde
    if is_dataclass(found) and not isinstance(found, type):
        inner = {each.name: getattr(found, each.name) for each in fields(found) if each.init}
        new = {name: changed(each, change) for name, each in inner.items() if is_serde(each)}
        if any(new[name] is not inner[name] for name in new):
            found = replace(found, **new)
    made: Serde[T] = change(found)
    return made


def unknown(number: int, where: str) -> SerializationError:
    """The error for an id that a registry does not have."""
    return SerializationError(
        f"a record names schema {number}, which is not in {where}",
        hint="the record was written with another registry, or it is not in this format",
    )


def _not_configured(what: str) -> ConfigurationError:
    return ConfigurationError(f"{what}, and there is no schema registry.", hint="say where it is in the settings")


def _plain(text: str) -> str:
    """A schema's text without its layout."""
    try:
        return json.dumps(json.loads(text), separators=(",", ":"))
    except ValueError:
        return text.strip()
