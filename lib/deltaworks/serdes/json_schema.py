"""JSON with a JSON Schema, as Confluent's serializers write it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from deltaworks.errors import SerializationError
from deltaworks.serdes import wire
from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.in_registry import InRegistry
from deltaworks.serdes.json import Json
from deltaworks.serdes.primitives import unfit, unreadable
from deltaworks.serdes.schema import json_changes
from deltaworks.serdes.schemas import SubjectStrategy, WriterSchema
from deltaworks.serdes.type_names import type_name

T = TypeVar("T")

Source = str | Mapping[str, Any] | Path


class JsonSchema(InRegistry[T]):
    """JSON of one Python type, alone or with the header of a schema registry.

    Shape: `T <-> bytes`. Values are checked against the type while they are read, as those of `Json`. The schema with
    which a record was written is not needed to read it, so a registry is only asked when a value is written.

    Args:
        type: as that of `Json`.
        schema: a JSON Schema's text, what a JSON parser makes of it, or its file; None: made from the type.
        registry: records begin with the id of their schema in a registry.
        subject: what the schema is registered under.
        validate: every record is checked against the schema, too, when it is read and when it is written; for a schema
            that says more than the type. It costs a multiple of the reading itself.
        decimals: how a `Decimal` is written; as a string, no reader can round it.
        otherwise: reads what does not begin with an id, such as `Json(Order)` for older records of the topic.

    Raises:
        TypeError: JSON cannot hold the type, or the schema has values that the type does not; says so by field.
        ValueError: the schema is none.

    Source: `io.confluent.kafka.serializers.json.KafkaJsonSchemaSerializer`.

    >>> from deltaworks.serdes.schemas import InMemory, bound
    >>> bound(JsonSchema(list[int], registry=True), InMemory(), "numbers", is_key=False).serialize([1, 2])
    b'\\x00\\x00\\x00\\x00\\x01[1,2]'
    """

    def __init__(
        self,
        type: type[T],
        schema: Source | None = None,
        *,
        registry: bool = False,
        subject: SubjectStrategy = "topic",
        validate: bool = False,
        decimals: Literal["string", "number"] = "string",
        otherwise: Serde[T] | None = None,
    ) -> None:
        self._json = Json(type, decimals=decimals)
        self._schema = made_from(self._json) if schema is None else loaded(schema)
        if schema is not None and (reasons := incompatibilities(self._schema, made_from(self._json), decimals)):
            raise TypeError(f"{type_name(type)} does not fit its JSON Schema: {'; '.join(reasons)}")
        self.type = type
        self.validate = validate
        self.decimals = decimals
        self._validator: Callable[[bytes], str | None] | None = None
        self._register(registry, subject, otherwise)

    @classmethod
    def _made(cls, type: type[T], schema: str, *rest: Any) -> JsonSchema[T]:
        registry, subject, validate, decimals, otherwise = rest
        return cls(
            type,
            schema,
            registry=registry,
            subject=subject,
            validate=validate,
            decimals=decimals,
            otherwise=otherwise,
        )

    @property
    def name(self) -> str:
        """Such as `json-schema(Order)`."""
        return f"json-schema({type_name(self.type)})"

    @property
    def schema(self) -> str:
        """The schema's text, JSON in one line."""
        return json.dumps(self._schema, separators=(",", ":"))

    @property
    def writer_schema(self) -> WriterSchema:
        """The schema as a registry has it."""
        return WriterSchema(self.schema, "JSON")

    def unreadable(self, writer: WriterSchema) -> list[str]:
        """Why values of a schema cannot be read, by field."""
        if writer.kind != "JSON":
            return [f"it is {writer.kind} and not JSON"]
        return incompatibilities(json.loads(writer.text), made_from(self._json), self.decimals)

    @property
    def meaning(self) -> dict[str, Any]:
        """What its bytes mean, for `serdes.schema`."""
        if self.registry:
            return {"format": "json-schema", "schema": self._json.schema(), "registry": True}
        return {"json": self._json.schema(), "decimals": self.decimals}

    def stored(self) -> Serde[T]:
        """The serde of a store that holds such values."""
        return Json(self.type, decimals=self.decimals)

    def serialize(self, value: T | None) -> bytes:
        """The value as compact JSON.

        Raises:
            SerializationError: JSON cannot hold it; with `validate`: the schema forbids it.
        """
        if value is None:
            return NULL
        body = self._json.serialize(value)
        if self.validate and (reason := self._invalid(body)) is not None:
            raise unfit(value, self.name, reason)
        return self._with_header(body)

    @property
    def record(self) -> str:
        return str(self._schema.get("title", type_name(self.type)))

    def _read(self, data: bytes, number: int | None) -> T:
        body = data if number is None else data[wire.HEADER_BYTES :]
        try:
            value = self._json.deserialize(body)
        except SerializationError as error:
            raise unreadable(data, self.name, error.__cause__) from error
        if self.validate and (reason := self._invalid(body)) is not None:
            raise unreadable(data, self.name, reason)
        return value

    def _invalid(self, body: bytes) -> str | None:
        if self._validator is None:
            self._validator = _validator(self._schema)
        return self._validator(body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((JsonSchema, self.name))

    def _identity(self) -> tuple[Any, ...]:
        return (
            *(self.type, self.schema, self.registry, self.subject),
            *(self.validate, self.decimals, self.otherwise),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._made, self._identity()


def made_from(serde: Json[Any]) -> dict[str, Any]:
    """The JSON Schema of a type, whose top is the type itself and not a reference to it."""
    found = serde.schema()
    types: dict[str, Any] = dict(found.get("$defs", {}))
    if "$ref" not in found:
        return found
    name = found["$ref"].rpartition("/")[2]
    top = types[name]
    if f'"#/$defs/{name}"' not in json.dumps(types):
        del types[name]
    return {**top, **({"$defs": types} if types else {})}


def loaded(schema: Source) -> dict[str, Any]:
    """What a JSON parser makes of a schema."""
    if isinstance(schema, Path):
        schema = schema.read_text()
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise ValueError(f"a JSON Schema is JSON, and this is none: {error}") from error
    if not isinstance(schema, Mapping):
        raise ValueError(f"a JSON Schema is an object, and this is {schema!r}")
    return dict(schema)


def incompatibilities(
    writer: Mapping[str, Any], reader: Mapping[str, Any], decimals: Literal["string", "number"] = "string"
) -> list[str]:
    """Why values of one JSON Schema cannot be read with another, a reason per field; empty if they can.

    Of what a schema may say, the types of values, their fields and what is required count. `if`, `not`, `allOf` of
    several and patterns do not.

    Args:
        writer: any JSON Schema.
        reader: one that is made from a type.
        decimals: what a `Decimal` of the reader is in the writer's schema.
    """
    return json_changes(_plain(writer, None), _plain(reader, decimals), as_text=True)


_KNOWN_FORMATS = {"date-time", "date", "time", "duration", "uuid", "decimal"}
_DECIMALS = {"string": ("string",), "number": ("number", "integer")}
"""How a schema may say that a field is a decimal, for which JSON Schema has no word."""
_COUNTED = {"type", "properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "enum", "$ref"}
_COUNTED |= {"$defs", "minItems", "maxItems", "format", "contentEncoding"}


def _plain(schema: Any, decimals: str | None) -> Any:
    """A schema in the words that msgspec uses."""
    if isinstance(schema, bool):
        return {} if schema else {"enum": []}
    found = {name: value for name, value in schema.items() if name in _COUNTED}
    for other, ours in (("definitions", "$defs"), ("oneOf", "anyOf")):
        if other in schema:
            found[ours] = schema[other]
    if len(schema.get("allOf", ())) == 1:
        found = {**found, **_plain(schema["allOf"][0], decimals)}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if decimals and found.get("format") == "decimal":
        return {
            "anyOf": [*([found] if decimals == "string" else []), *({"type": each} for each in _DECIMALS[decimals])]
        }
    if found.get("format") not in _KNOWN_FORMATS:
        found.pop("format", None)
    if isinstance(kinds := found.get("type"), list):
        rest = {name: value for name, value in found.items() if name != "type"}
        found = {"anyOf": [{"type": each, **(rest if each != "null" else {})} for each in kinds]}
    for name in ("properties", "$defs"):
        if name in found:
            found[name] = {key: _plain(value, decimals) for key, value in found[name].items()}
    for name in ("anyOf", "prefixItems"):
        if name in found:
            found[name] = [_plain(each, decimals) for each in found[name]]
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), Mapping):
            found[name] = _plain(found[name], decimals)
    return found


def _validator(schema: Mapping[str, Any]) -> Callable[[bytes], str | None]:
    from jsonschema.validators import validator_for

    kind = validator_for(schema)
    kind.check_schema(schema)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def check(body: bytes) -> str | None:
        error = next(iter(validator.iter_errors(json.loads(body))), None)
        if error is None:
            return None
        # Its message holds the value.
        return f"{error.json_path} breaks '{error.validator}' of the schema"

    return check
