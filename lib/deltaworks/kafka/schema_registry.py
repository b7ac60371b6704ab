"""A schema registry that speaks Confluent's protocol, through Confluent's client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar

from deltaworks import clock
from deltaworks.errors import ConfigurationError, ConflictError, SchemasUnavailableError
from deltaworks.serdes.schemas import Kind, Reference, Registered, WriterSchema, unknown

T = TypeVar("T")

_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422
_PATIENCE: dict[str, Any] = {"timeout": 10, "max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 1000}
_MISSING_S = 10.0
"""How long an id that is not there is not asked for again: each record may name one."""


class Registry:
    """`Schemas` of a registry. What it has answered is asked for once.

    Args:
        url: such as `http://registry:8081`, or `mock://tests` for the one that Confluent's clients have in memory.
        options: more of the client's configuration, such as `basic.auth.user.info` or `ssl.ca.location`.
        register: schemas are registered; else they must be there, as with `auto.register.schemas=false`.

    Raises:
        ConfigurationError: the client is not installed, or refuses an option.

    Source: `SchemaRegistryClient`.
    """

    def __init__(self, url: str, *, options: Mapping[str, Any] | None = None, register: bool = True) -> None:
        self._url = url.rpartition("@")[2]  # what is in front of it is a secret
        self._register = register
        self._client = _client({"url": url, **_PATIENCE, **(options or {})})
        self._by_id: dict[int, WriterSchema] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._missing: dict[int, float] = {}
        """Id -> when it was not there."""

    def by_id(self, number: int) -> WriterSchema:
        """The schema with an id; raises `SerializationError` if there is none."""
        if number not in self._by_id:
            if clock.ticks_s() < self._missing.get(number, -_MISSING_S) + _MISSING_S:
                raise unknown(number, self._url)
            try:
                self._by_id[number] = self._asked(
                    lambda: self._whole(self._client.get_schema(number)), f"schema {number}"
                )
            except _NotFoundError:
                self._missing[number] = clock.ticks_s()
                raise unknown(number, self._url) from None
        return self._by_id[number]

    def id_of(self, subject: str, schema: WriterSchema) -> int:
        """The id of a schema, with which it is registered if it is not yet and `register` is true."""
        key = subject, schema.fingerprint
        if key not in self._ids:
            try:
                self._ids[key] = self._asked(lambda: self._id(subject, schema), f"a schema of subject '{subject}'")
            except _NotFoundError:
                raise ConfigurationError(
                    f"the schema is not registered under subject '{subject}' in {self._url}.",
                    hint="register it there, or let it be registered",
                ) from None
        return self._ids[key]

    def versions(self, subject: str) -> list[Registered]:
        """All versions of a subject, asked for each time."""

        def ask() -> list[Registered]:
            found = [self._client.get_version(subject, each) for each in sorted(self._client.get_versions(subject))]
            return [Registered(int(each.schema_id), self._whole(each.schema), each.version) for each in found]

        try:
            return self._asked(ask, f"subject '{subject}'")
        except _NotFoundError:
            return []

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        """Why a schema would be refused: it is not compatible, or not there and not to be registered."""
        if not self._register:
            try:
                self.id_of(subject, schema)
            except ConfigurationError as error:
                return error.message
            return None
        if self._url.startswith("mock:"):
            return None  # it takes all

        def ask() -> str | None:
            if self._client.test_compatibility_all_versions(subject, self._theirs(schema, register=False)):
                return None
            return f"it is not {self._level(subject)} compatible with the versions that are there"

        try:
            return self._asked(ask, f"the compatibility of a schema of subject '{subject}'")
        except _NotFoundError:  # the first one of its subject, or of one that it refers to
            return None
        except ConflictError as error:
            return error.message

    def _level(self, subject: str) -> str:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return str(self._client.get_compatibility(subject))
        except SchemaRegistryError as error:
            if error.http_status_code != _NOT_FOUND:
                raise
            return str(self._client.get_compatibility())

    def _whole(self, schema: Any) -> WriterSchema:
        """With its references, and as it was registered: descriptors that registries make of `.proto` files may lack
        options, or fail."""
        references = []
        for each in schema.references or ():
            found = self._client.get_version(each.subject, each.version, True).schema
            references.append(Reference(each.name, self._whole(found), each.subject, each.version))
        kind: Kind = schema.schema_type or "AVRO"
        return WriterSchema(schema.schema_str, kind, tuple(references))

    def _id(self, subject: str, schema: WriterSchema) -> int:
        theirs = self._theirs(schema, register=self._register)
        if self._register:
            return int(self._client.register_schema(subject, theirs))
        return int(self._client.lookup_schema(subject, theirs).schema_id)

    def _theirs(self, schema: WriterSchema, *, register: bool) -> Any:
        from confluent_kafka.schema_registry import Schema, SchemaReference

        references = []
        for each in schema.references:
            subject = each.subject or each.name
            inner = self._theirs(each.schema, register=register)
            if register:
                self._client.register_schema(subject, inner)
            version = self._client.lookup_schema(subject, inner).version
            references.append(SchemaReference(each.name, subject, version))
        return Schema(schema.text, schema.kind, references)

    def _asked(self, ask: Callable[[], T], what: str) -> T:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            raise self._refused(error, what) from error
        except _unreachable() as error:
            reason = str(error) or type(error).__name__
            raise SchemasUnavailableError(
                f"the schema registry {self._url} does not answer when asked for {what}: {reason}",
                hint="records whose schemas are known are still read and written",
            ) from error

    def _refused(self, error: Any, what: str) -> Exception:
        if error.http_status_code == _NOT_FOUND:
            return _NotFoundError()
        if error.http_status_code in (_CONFLICT, _INVALID):
            return ConflictError(
                f"the schema registry {self._url} refuses {what}: {error.error_message}",
                hint="make it compatible with the versions that are there, or use another subject",
            )
        return SchemasUnavailableError(
            f"the schema registry {self._url} answers {error.http_status_code} when asked for {what}:"
            f" {error.error_message}",
            hint="check its address and credentials" if error.http_status_code in (401, 403) else None,
        )


class _NotFoundError(Exception):
    """The registry does not have it."""


def _client(options: dict[str, Any]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"'{error.name}' is not installed, which the client of the schema registry needs.",
            hint="pip install 'deltaworks[schemas]'",
        ) from error
    try:
        return SchemaRegistryClient.new_client(options)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"the client of the schema registry refuses its options: {error}") from error


def _unreachable() -> tuple[type[Exception], ...]:
    """What the client raises if nobody answers."""
    from confluent_kafka.schema_registry.error import OAuthTokenError

    found: list[type[Exception]] = [OAuthTokenError, OSError]
    for name in ("httpx2", "httpx"):  # older clients use the latter
        with suppress(ModuleNotFoundError):
            found.append(import_module(name).HTTPError)
    return tuple(found)
