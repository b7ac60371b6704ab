"""The serde `Protobuf`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from deltaworks.errors import SerializationError
from deltaworks.serdes import wire
from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.in_registry import InRegistry
from deltaworks.serdes.made_types import made_of
from deltaworks.serdes.packed import Packed
from deltaworks.serdes.primitives import unfit, unreadable
from deltaworks.serdes.protobuf.described import described, incompatibilities
from deltaworks.serdes.protobuf.descriptors import Descriptors, Source, by_name, descriptors, of_class, of_writer
from deltaworks.serdes.protobuf.fitting import fitted
from deltaworks.serdes.schemas import SubjectStrategy, WriterSchema
from deltaworks.serdes.shapes import shape_of
from deltaworks.serdes.type_names import type_name

T = TypeVar("T")

_BROKEN = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, SerializationError)


class Protobuf(InRegistry[T]):
    """Protobuf of one Python type, alone or with the header of a schema registry.

    Shape: `T <-> bytes`. Fields of a record that the schema does not have are skipped, and those that a record does not
    have are empty. Equal values give equal bytes.

    | Protobuf | Python |
    |---|---|
    | `int32` ... `fixed64`; `double`, `float`; `bool`; `string`; `bytes` | `int`; `float`; `bool`; `str`; `bytes` |
    | message; enum | a Struct, dataclass or NamedTuple; `Literal` or `Enum` |
    | `repeated`; `map` | `list`, `tuple`, `set`; `dict` |
    | `optional`, a message, a member of a `oneof` | `X \\| None`, or a field with a default |
    | `google.protobuf.Timestamp`, `Duration` | aware `datetime`, read in UTC; `timedelta`; nanoseconds are refused |
    | `google.type.Date`, `TimeOfDay` | `date`, `time` |
    | `google.type.Decimal`, `confluent.type.Decimal`, `string` | `Decimal` |
    | wrappers such as `StringValue` | `X \\| None` |
    | `google.protobuf.Struct`, `Value`, `ListValue` | `Any` |

    Args:
        type: of the values; or a class that protoc has generated, whose messages are the values then.
        schema: a `.proto` file, or its text; a set of descriptors, or its file. None with a generated class.
        message: full name of the message; None: the only one at the top of the schema.
        include: folders of files that the schema imports.
        imports: texts of such files by their paths.
        registry: records begin with the id of their schema in a registry, and the place of their message in it.
        subject: what the schema is registered under.
        otherwise: reads what does not begin with an id, such as `Json(Order)` for older records of the topic.

    Raises:
        TypeError: the type does not fit the message; says so by field.
        ValueError: the schema is none, or has no such message.
        ConfigurationError: a `.proto` file needs a compiler, and it is not installed.

    Source: `io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer`.
    """

    def __init__(
        self,
        type: type[T],
        schema: Source | None = None,
        message: str | None = None,
        *,
        include: Sequence[Path] = (),
        imports: Mapping[str, Source] | None = None,
        registry: bool = False,
        subject: SubjectStrategy = "topic",
        otherwise: Serde[T] | None = None,
    ) -> None:
        if schema is None and not hasattr(type, "DESCRIPTOR"):
            raise TypeError(f"schema= says how {type_name(type)} is written: Protobuf knows fields by their numbers")
        found = of_class(type) if schema is None else descriptors(schema, message, include=include, imports=imports)
        self._set(type, found, registry, subject, otherwise)

    @classmethod
    def generic(
        cls,
        schema: Source,
        message: str | None = None,
        *,
        include: Sequence[Path] = (),
        imports: Mapping[str, Source] | None = None,
        **options: Any,
    ) -> Protobuf[Any]:
        """A serde without a type of one's own: a Struct is made of the message.

        Args:
            schema: as above, like the other arguments.
            message: the message.
            include: folders.
            imports: texts.
            options: the other arguments of `Protobuf`.

        Raises:
            TypeError: a message contains itself, or Python has no type for a field.
        """
        found = descriptors(schema, message, include=include, imports=imports)
        kind = made_of("PROTOBUF", base64.b64encode(found.as_set()).decode(), found.message)
        return Protobuf(kind, found.as_set(), found.message, **options)

    def _set(self, type: Any, found: Descriptors, registry: bool, subject: SubjectStrategy, otherwise: Any) -> None:
        self.type = type
        self._descriptors = found
        self._register(registry, subject, otherwise)
        self._convert()

    def _forget(self) -> None:
        super()._forget()
        self._readable: set[bytes] = set()

    def _convert(self) -> None:
        from google.protobuf.message import DecodeError, EncodeError

        self._broken: tuple[type[Exception], ...] = (*_BROKEN, DecodeError, EncodeError)
        if self.is_generated:
            self._message: Any = self.type
            self._from_message: Callable[[Any], Any] | None = None
            self._write: Callable[[Any], Any] | None = None
            return
        from google.protobuf.message_factory import GetMessageClass

        found = fitted(self._descriptors.descriptor, shape_of(self.type))
        if found.problems:
            raise TypeError(f"{type_name(self.type)} does not fit its message: {'; '.join(found.problems)}")
        self._message = GetMessageClass(self._descriptors.descriptor)
        self._from_message, self._write = found.fit.read, found.fit.write

    @property
    def is_generated(self) -> bool:
        """Whether the values are messages of a class that protoc has generated."""
        return hasattr(self.type, "DESCRIPTOR")

    @property
    def name(self) -> str:
        """Such as `protobuf(Order)`."""
        return f"protobuf({type_name(self.type)})"

    @property
    def writer_schema(self) -> WriterSchema:
        """The schema as a registry has it."""
        return self._descriptors.writer_schema

    @property
    def meaning(self) -> dict[str, Any]:
        """What its bytes mean, for `serdes.schema`."""
        return {"format": "protobuf", "schema": described(self._descriptors.descriptor), "registry": self.registry}

    def stored(self) -> Serde[T]:
        """The serde of a store that holds such values."""
        if self.is_generated:
            return _protobuf(self.type, self._descriptors, False, self.subject, None)
        return Packed(self.type)

    def serialize(self, value: T | None) -> bytes:
        """The value in Protobuf.

        Raises:
            SerializationError: a field does not fit the message, or would be rounded.
        """
        if value is None:
            return NULL
        try:
            message: Any = value if self._write is None else self._write(value)
            body: bytes = message.SerializeToString(deterministic=True)
        except self._broken as error:
            raise unfit(value, self.name, error) from error
        return self._with_header(body)

    @property
    def record(self) -> str:
        return self._descriptors.message

    @property
    def _place(self) -> bytes:
        return wire.indexes(self._descriptors.path)

    def _read(self, data: bytes, number: int | None) -> T:
        at = 0 if number is None else self._body(data, number)
        try:
            message = self._message.FromString(data[at:] if at else data)
            if not message.IsInitialized():
                raise ValueError(f"{', '.join(message.FindInitializationErrors())} is not set, which is required")
            return cast("T", message if self._from_message is None else self._from_message(message))
        except self._broken as error:
            raise unreadable(data, self.name, error) from error

    def _body(self, data: bytes, number: int) -> int:
        """Where the message begins, once it is known that it can be read."""
        try:
            path, at = wire.read_indexes(data, wire.HEADER_BYTES)
        except ValueError as error:
            raise unreadable(data, self.name, error) from error
        if data[:at] not in self._readable:
            self._check_writer(number, path)
            self._readable.add(data[:at])
        return at

    def _check_writer(self, number: int, path: Sequence[int]) -> None:
        writer = self._binding.schemas.by_id(number)
        if tuple(path) == self._descriptors.path and writer.fingerprint == self.writer_schema.fingerprint:
            return  # its own, without a compiler
        if writer.kind == "PROTOBUF" and (found := self._of_writer(number, writer, path)) != self._descriptors.message:
            raise SerializationError(f"a record is a {found} and not a {self._descriptors.message}")
        if reasons := self.unreadable(writer):
            raise SerializationError(
                f"a record was written with schema {number}, which {self.name} cannot read: {'; '.join(reasons)}"
            )

    def unreadable(self, writer: WriterSchema) -> list[str]:
        """Why messages of a schema cannot be read, by field."""
        if writer.kind != "PROTOBUF":
            return [f"it is {writer.kind} and not Protobuf"]
        before = described(by_name(writer, self._descriptors.message).descriptor)
        return incompatibilities(before, described(self._descriptors.descriptor))

    def _of_writer(self, number: int, writer: WriterSchema, path: Sequence[int]) -> str:
        """The name of the message at a place of a schema."""
        try:
            return of_writer(writer, path).message
        except (ValueError, TypeError) as error:
            raise SerializationError(
                f"a record names a message of schema {number} that is not there: {error}"
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Protobuf) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((Protobuf, self._descriptors.message))

    def _identity(self) -> tuple[Any, ...]:
        return self.type, self._descriptors, self.registry, self.subject, self.otherwise

    def __reduce__(self) -> tuple[Any, ...]:
        plain = Descriptors(self._descriptors.files, self._descriptors.message)
        return _protobuf, (self.type, plain, self.registry, self.subject, self.otherwise)


def _protobuf(type: Any, found: Descriptors, registry: bool, subject: SubjectStrategy, otherwise: Any) -> Protobuf[Any]:
    made: Protobuf[Any] = Protobuf.__new__(Protobuf)
    made._set(type, found, registry, subject, otherwise)
    return made
