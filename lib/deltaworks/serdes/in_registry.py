"""What serdes have in common whose records may begin with the id of their schema."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from deltaworks.serdes import wire
from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.primitives import unreadable
from deltaworks.serdes.schemas import Binding, Schemas, SubjectStrategy, WriterSchema, bound
from deltaworks.serdes.type_names import type_name

T = TypeVar("T")


class InRegistry(Generic[T]):
    """A serde with or without a registry; `serdes.schemas.bound` tells it which one."""

    type: Any

    def _register(self, registry: bool, subject: SubjectStrategy, otherwise: Serde[T] | None) -> None:
        """The arguments that all of them have."""
        if otherwise is not None and not registry:
            raise TypeError("otherwise= reads what does not begin with an id, so it needs registry=True")
        self.registry = registry
        self.subject = subject
        self.otherwise = otherwise
        self._binding = Binding()
        self._forget()

    def _forget(self) -> None:
        """Drops what a registry has said."""
        self._header: bytes | None = None

    @property
    def name(self) -> str:
        """The format and the type."""
        raise NotImplementedError

    @property
    def writer_schema(self) -> WriterSchema:
        """The schema as a registry has it."""
        raise NotImplementedError

    @property
    def registered_as(self) -> str | None:
        """The subject of its schema, once it is bound; None: its records name no schema."""
        return self._binding.subject(self.subject, self.record) if self.registry else None

    def unreadable(self, writer: WriterSchema) -> list[str]:
        """Why values of a schema cannot be read, a reason per field; empty if they can.

        Raises:
            ValueError: it is no schema of its format.
        """
        raise NotImplementedError

    def bind(self, schemas: Schemas, topic: str | None, is_key: bool) -> Self:
        """The same serde with a registry; `serdes.schemas.bound` calls it."""
        new = self.__class__.__new__(self.__class__)
        vars(new).update(vars(self))
        new._binding = Binding(schemas, topic, is_key)
        new._forget()
        if self.otherwise is not None:
            new.otherwise = bound(self.otherwise, schemas, topic, is_key=is_key)
        return new

    def deserialize(self, data: bytes | None) -> T:
        """The value.

        Raises:
            SerializationError: the bytes are not of the format or of the type, or they name a schema that the registry
                does not have, or one that the type cannot be read from.
            SchemasUnavailableError: they name a schema that is not known yet, and the registry does not answer.
        """
        if data is None:
            return NULL
        if not self.registry:
            return self._read(data, None)
        number = wire.schema_id(data)
        if number is not None:
            return self._read(data, number)
        if self.otherwise is not None:
            return self.otherwise.deserialize(data)
        raise unreadable(data, self.name, "they do not begin with a zero and the id of a schema")

    def _read(self, data: bytes, number: int | None) -> T:
        """The value of a record.

        Args:
            data: with the header, if there is one.
            number: the id in it; None: there is none.
        """
        raise NotImplementedError

    def _with_header(self, body: bytes) -> bytes:
        """The bytes of a value, behind the id of the schema if there is a registry."""
        if not self.registry:
            return body
        if self._header is None:
            number = self._binding.schemas.id_of(self.registered_as or "", self.writer_schema)
            self._header = wire.header(number) + self._place
        return self._header + body

    @property
    def record(self) -> str:
        """The name of a record, for the subject."""
        raise NotImplementedError

    @property
    def _place(self) -> bytes:
        """What else is in front of a record."""
        return b""

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({type_name(self.type)}{', registry=True' if self.registry else ''})"
