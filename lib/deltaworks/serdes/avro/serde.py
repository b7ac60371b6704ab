"""The serde `Avro`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from deltaworks.errors import SerializationError
from deltaworks.serdes import wire
from deltaworks.serdes.avro import codec, nodes
from deltaworks.serdes.avro.changes import incompatibilities
from deltaworks.serdes.avro.fitting import fitted
from deltaworks.serdes.avro.from_type import schema_from
from deltaworks.serdes.avro.names import adopted
from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.in_registry import InRegistry
from deltaworks.serdes.made_types import made_of
from deltaworks.serdes.packed import Packed
from deltaworks.serdes.primitives import unfit
from deltaworks.serdes.schemas import Reference, SubjectStrategy, WriterSchema
from deltaworks.serdes.shapes import shape_of
from deltaworks.serdes.type_names import type_name

T = TypeVar("T")


class Avro(InRegistry[T]):
    """Avro of one Python type, alone or with the header of a schema registry.

    Shape: `T <-> bytes`. A record that was written with another version of the schema is read by Avro's rules of schema
    resolution, which needs `registry`; without it, all records have this schema. Equal values give equal bytes: the
    entries of maps are sorted.

    | Avro | Python |
    |---|---|
    | `int`, `long`; `float`, `double`; `boolean`; `string`; `bytes`, `fixed` | `int`; `float`; `bool`; `str`; `bytes` |
    | record; enum | a Struct, dataclass or NamedTuple; `Literal` or `Enum` |
    | array; map; union | `list`, `tuple`, `set`; `dict`; `X \\| Y` |
    | `decimal` | `Decimal`, with its digits: `Annotated[Decimal, DecimalDigits(18, 2)]` |
    | `date`; `time-millis`, `time-micros`; `uuid` | `date`; `time`; `UUID` |
    | `timestamp-millis`, `timestamp-micros` | aware `datetime`, read in UTC |
    | `local-timestamp-millis`, `local-timestamp-micros` | `datetime` without a time zone |
    | `duration`, `timestamp-nanos` and unknown logical types | the type without them: `bytes`, `int` |

    Args:
        type: of the values. Its fields must be in the schema; a field of the schema that it does not have is skipped.
        schema: a schema's text, what a JSON parser makes of it, or its file; None: made from the type.
        registry: records begin with the id of their schema in a registry, as Confluent's serializers write them.
        subject: what the schema is registered under.
        namespace: of the records of a schema that is made from the type.
        references: full name of a type that the schema refers to -> its schema, in an order in which each knows those
            before it.
        otherwise: reads what does not begin with an id, such as `Json(Order)` for older records of the topic.

    Raises:
        TypeError: the type does not fit the schema, or Avro has no such type; says so by field.
        ValueError: the schema is none.

    Source: `io.confluent.kafka.serializers.KafkaAvroSerializer`, whose values are generated classes.

    >>> Avro(int).serialize(7)
    b'\\x0e'
    >>> from deltaworks.serdes.schemas import InMemory, bound
    >>> bound(Avro(int, registry=True), InMemory(), "numbers", is_key=False).serialize(7).hex()
    '00000000010e'
    """

    def __init__(
        self,
        type: type[T],
        schema: nodes.Source | None = None,
        *,
        registry: bool = False,
        subject: SubjectStrategy = "topic",
        namespace: str | None = None,
        references: Mapping[str, nodes.Source] | None = None,
        otherwise: Serde[T] | None = None,
    ) -> None:
        shape = shape_of(type)
        self._references = {name: _compact(nodes.loaded(each)) for name, each in (references or {}).items()}
        self._node = schema_from(shape, namespace) if schema is None else nodes.parsed(schema, self._references)
        self._fitted = fitted(self._node, shape)
        if self._fitted.problems:
            raise TypeError(f"{type_name(type)} does not fit its Avro schema: {'; '.join(self._fitted.problems)}")
        self.type = type
        # As it was given, with what means nothing to us: a registry knows it by that.
        self._text = _compact(nodes.to_json(self._node) if schema is None else nodes.loaded(schema))
        self._write: Callable[[Any], bytes] | None = None
        self._read_own: Callable[[bytes], T] | None = None
        self._register(registry, subject, otherwise)

    @classmethod
    def generic(cls, schema: nodes.Source, **options: Any) -> Avro[Any]:
        """A serde without a type of one's own: a Struct is made of the schema, with its names and defaults.

        Args:
            schema: as above.
            options: the other arguments of `Avro`.

        Raises:
            TypeError: a record contains itself.

        >>> schema = {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]}
        >>> Avro.generic(schema).deserialize(bytes.fromhex("0278"))
        Line(item='x')
        """
        known = {name: _compact(nodes.loaded(each)) for name, each in (options.get("references") or {}).items()}
        whole = _compact(nodes.to_json(nodes.parsed(schema, known)))
        return Avro(made_of("AVRO", whole), schema, **options)

    @classmethod
    def _made(cls, type: type[T], text: str, references: Mapping[str, str], *rest: Any) -> Avro[T]:
        registry, subject, otherwise = rest
        return cls(type, text, references=references, registry=registry, subject=subject, otherwise=otherwise)

    def _forget(self) -> None:
        super()._forget()
        self._readers: dict[int, Callable[[bytes], T]] = {}

    @property
    def name(self) -> str:
        """Such as `avro(Order)`."""
        return f"avro({type_name(self.type)})"

    @property
    def schema(self) -> str:
        """The schema's text, JSON in one line."""
        return self._text

    @property
    def writer_schema(self) -> WriterSchema:
        """The schema as a registry has it."""
        known: list[Reference] = []
        for name, text in self._references.items():
            known.append(Reference(name, WriterSchema(text, "AVRO", _mentioned(known, text))))
        return WriterSchema(self._text, "AVRO", _mentioned(known, self._text))

    @property
    def meaning(self) -> dict[str, Any]:
        """What its bytes mean, for `serdes.schema`."""
        return {"format": "avro", "schema": json.loads(nodes.canonical(self._node)), "registry": self.registry}

    def stored(self) -> Serde[T]:
        """The serde of a store that holds such values."""
        return Packed(self.type)

    def serialize(self, value: T | None) -> bytes:
        """The value in Avro.

        Raises:
            SerializationError: a field does not fit the schema, or would be rounded; or the type lacks a field that has
                no default in the schema.
        """
        if value is None:
            return NULL
        if self._write is None:
            if self._fitted.unwritable:
                raise unfit(value, self.name, "; ".join(self._fitted.unwritable))
            self._write = codec.writing(self._node, self._fitted, self.name)
        return self._with_header(self._write(value))

    @property
    def record(self) -> str:
        node = self._node
        return node.name if isinstance(node, nodes.Record | nodes.Symbols | nodes.Fixed) else nodes.words(node)

    def _read(self, data: bytes, number: int | None) -> T:
        if number is None:
            if self._read_own is None:
                self._read_own = codec.reading(self._node, self._fitted, self.name)
            return self._read_own(data)
        read = self._readers.get(number)
        if read is None:
            read = self._readers[number] = self._reader_of(number)
        return read(data[wire.HEADER_BYTES :])

    def _reader_of(self, number: int) -> Callable[[bytes], T]:
        writer = self._binding.schemas.by_id(number)
        if reasons := self.unreadable(writer):
            raise SerializationError(
                f"a record was written with schema {number}, which {self.name} cannot read: {'; '.join(reasons)}",
                hint="give the type, or the schema of the serde, what both versions have",
            )
        node = nodes.parsed(writer.text, writer.referred)
        return codec.reading(node, self._fitted, self.name)

    def unreadable(self, writer: WriterSchema) -> list[str]:
        """Why values of a schema cannot be read, by field."""
        if writer.kind != "AVRO":
            return [f"it is {writer.kind} and not Avro"]
        node = nodes.parsed(writer.text, writer.referred)
        return incompatibilities(node, adopted(self._fitted.fit.reader, node))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Avro) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((Avro, self._text))

    def _identity(self) -> tuple[Any, ...]:
        return self.type, self._text, self._references, self.registry, self.subject, self.otherwise

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__class__._made, self._identity()


def _compact(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _mentioned(known: list[Reference], text: str) -> tuple[Reference, ...]:
    """Those that a schema refers to, by full name or inside their namespace."""
    return tuple(each for each in known if f'"{each.name}"' in text or f'"{nodes.short(each.name)}"' in text)
