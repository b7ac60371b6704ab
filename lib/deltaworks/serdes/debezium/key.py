"""Keys that Debezium writes: a struct of the columns of a table's primary key."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from deltaworks.errors import SerializationError
from deltaworks.serdes.base import NULL
from deltaworks.serdes.checked import check_holds, forget_cache, plain_name
from deltaworks.serdes.primitives import unfit, unreadable
from deltaworks.serdes.shapes import Basic, Choice, Record, Shape, in_python, shape_of

T = TypeVar("T")

_AS_THEY_ARE = (Basic.TEXT, Basic.INTEGER, Basic.BOOLEAN, Basic.UUID)
_END = b"}"


class DebeziumKey(Generic[T]):
    """Keys of rows in topics that Debezium writes, in JSON: `{"id":7}`.

    Shape: `T <-> bytes`. The bytes of a key decide its partition, so they are written exactly as Debezium writes them,
    and a key that would come back with other bytes is refused.

    Args:
        type: of the column, with `field`; else a `msgspec.Struct` or a dataclass with all columns of the key, in their
            order. Columns are `int`, `str`, `bool` or `UUID`, an enum or a `Literal` of those; a date is an `int`, its
            number of days.
        field: the only column of the key.
        schema: the text of the schema in front of each key, if the connector's converter writes one;
            `DebeziumKey.schema_in(key)` takes it out of a key.

    Raises:
        TypeError: the type is no key.

    Source: none; Kafka Streams has no serde of Debezium.

    >>> DebeziumKey(int, field="id").serialize(7)
    b'{"id":7}'
    """

    def __init__(self, type: type[T], *, field: str | None = None, schema: str | None = None) -> None:
        check_holds(type, "a key")
        self.type: Any = type
        self.field = field
        self.schema = schema
        struct: Any = type if field is None else _struct_of(field, type)
        _require_key(shape_of(struct), plain_name(type))
        self._struct = struct
        self._encode = msgspec.json.Encoder(uuid_format="canonical").encode
        self._decode = msgspec.json.Decoder(struct).decode
        self._begin = b"" if schema is None else b'{"schema":' + schema.encode() + b',"payload":'
        forget_cache(type)

    @staticmethod
    def schema_in(key: bytes) -> str | None:
        """The schema in front of a key; None: it has none.

        Args:
            key: the bytes of one in the topic.

        Raises:
            SerializationError: they are no JSON object.
        """
        try:
            found = msgspec.json.decode(key, type=_Wrapped).schema
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unreadable(key, "key of Debezium", error) from error
        return None if found is msgspec.UNSET or bytes(found)[:1] != b"{" else bytes(found).decode()

    @property
    def name(self) -> str:
        """Such as `debezium-key(id: int)`."""
        inside = plain_name(self.type) if self.field is None else f"{self.field}: {plain_name(self.type)}"
        return f"debezium-key({inside}{', with a schema' if self.schema is not None else ''})"

    @property
    def meaning(self) -> dict[str, Any]:
        """What its bytes mean, for `serdes.schema`."""
        try:
            schema = msgspec.json.schema(self._struct)
        finally:
            forget_cache(self._struct)
        return {"format": "debezium-key", "schema": schema, "with": self.schema}

    def serialize(self, value: T | None) -> bytes:
        """The bytes of a key, as Debezium writes them."""
        if value is None:
            return NULL
        try:
            body = self._encode(value if self.field is None else {self.field: value})
            self._decode(body)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise unfit(value, self.name, error) from error
        return body if self.schema is None else self._begin + body + _END

    def deserialize(self, data: bytes | None) -> T:
        """The key.

        Raises:
            SerializationError: it is another one, or it has other bytes than `serialize` writes.
        """
        if data is None:
            return NULL
        begin = len(self._begin)
        if data[:begin] != self._begin:
            raise self._other(data)
        body = data[begin : len(data) - 1] if begin else data
        try:
            found: Any = self._decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._other(data, error) from error
        if self._encode(found) != body:
            raise self._other(data)
        value: T = found if self.field is None else found.key
        return value

    def _other(self, data: bytes, error: Exception | None = None) -> SerializationError:
        found = self.schema_in(data)
        if found is not None and self.schema is None:
            reason = "it begins with a schema: say it with schema=, or let the connector write plain JSON"
        elif found is None and self.schema is not None:
            reason = "it has no schema"
        elif found != self.schema:
            reason = "it has another schema; has the primary key of the table changed?"
        elif error is not None:
            reason = str(error)
        else:
            reason = "its JSON has other columns, another order, or is spelled otherwise, so it would get other bytes"
        return unreadable(data, self.name, reason)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebeziumKey) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((DebeziumKey, self.name))

    def __repr__(self) -> str:
        field = "" if self.field is None else f", field={self.field!r}"
        return f"DebeziumKey({plain_name(self.type)}{field})"

    def _identity(self) -> tuple[Any, ...]:
        return self.type, self.field, self.schema

    def __reduce__(self) -> tuple[Any, ...]:
        return _key, self._identity()


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _key(type: type[T], field: str | None, schema: str | None) -> DebeziumKey[T]:
    return DebeziumKey(type, field=field, schema=schema)


def _struct_of(field: str, kind: Any) -> Any:
    return msgspec.defstruct("Key", [("key", kind)], rename={"key": field}, module=__name__)


def _require_key(shape: Shape, name: str) -> None:
    if not isinstance(shape, Record):
        raise TypeError(f"a key of Debezium has columns: DebeziumKey({name}, field='id') is one with a single column")
    for part in shape.parts:
        if part.shape not in _AS_THEY_ARE and not isinstance(part.shape, Choice):
            raise TypeError(
                f"column '{part.written}' of a key is {in_python(part.shape)}, whose bytes in JSON are not those of "
                "Debezium; take int for a number, also of days, and str for all else"
            )
