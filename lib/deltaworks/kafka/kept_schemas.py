"""Schemas of a registry in a folder, so that records can be read and written while the registry is away.

| file | what |
|---|---|
| `ids/ID.json` | the schema with an id |
| `subjects/FINGERPRINT.json` | the id of a schema under a subject |
| `missing/ID.json` | there was no schema with an id when a record named it |
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from deltaworks import files, formats
from deltaworks.errors import ConfigurationError, ConflictError, SchemasUnavailableError, SerializationError
from deltaworks.serdes.schemas import Registered, Schemas, WriterSchema, unknown

T = TypeVar("T")

FORMAT = 1


class _Schema(msgspec.Struct):
    """The schema with an id."""

    format: int
    schema: WriterSchema


class _Id(msgspec.Struct):
    """The id of a schema under a subject."""

    format: int
    id: int
    subject: str


class _Missing(msgspec.Struct):
    """There was none with an id."""

    format: int


class Kept:
    """`Schemas` that remember what others have said.

    A file is written once and never changes, as ids do not; any number of processes may share the folder.

    Args:
        folder: of this registry alone: another one has other ids.
        behind: asked for what is not in the folder.
        of_history: records are read that were read before. What the stream has not found then, is not there either
            if `behind` does not answer; a running stream waits for the answer.

    Raises:
        ConflictError: two processes were told different schemas for one id, so there are two registries behind.
        IncompatibleCheckpointError: another version wrote a file.
    """

    def __init__(self, folder: Path, behind: Schemas, *, of_history: bool = False) -> None:
        self._folder = folder
        self._behind = behind
        self._of_history = of_history
        self._missing: set[int] = set()
        self._files = files.files_in(folder)

    def by_id(self, number: int) -> WriterSchema:
        """The schema with an id."""
        name = f"ids/{number}.json"
        if number not in self._missing and (kept := self._files.get(name)) is not None:
            return self._decoded(name, kept.data, _Schema).schema
        found = self._asked(number)
        self._missing.discard(number)
        if not self._files.put_if_absent(name, msgspec.json.encode(_Schema(FORMAT, found))):
            self.check(number, found)
        return found

    def _asked(self, number: int) -> WriterSchema:
        missing = f"missing/{number}.json"
        try:
            return self._behind.by_id(number)
        except SerializationError:
            if number not in self._missing:
                self._files.put_if_absent(missing, msgspec.json.encode(_Missing(FORMAT)))
                self._missing.add(number)
            raise
        except (SchemasUnavailableError, ConfigurationError):
            if self._of_history and (kept := self._files.get(missing)) is not None:
                self._decoded(missing, kept.data, _Missing)
                raise unknown(number, "the schema registry when the stream read it") from None
            raise

    def id_of(self, subject: str, schema: WriterSchema) -> int:
        """The id of a schema under a subject."""
        name = self._of_subject(subject, schema)
        if (kept := self._files.get(name)) is not None:
            return self._decoded(name, kept.data, _Id).id
        number = self._behind.id_of(subject, schema)
        self.by_id(number)  # what is written is read again, by others and by replays
        self._files.put_if_absent(name, msgspec.json.encode(_Id(FORMAT, number, subject)))
        return number

    def versions(self, subject: str) -> list[Registered]:
        """All versions of a subject, which only the registry knows."""
        return self._behind.versions(subject)

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        """Why a schema would be refused; one that is kept would not."""
        if self._files.get(self._of_subject(subject, schema)) is not None:
            return None
        return self._behind.refusal(subject, schema)

    def check(self, number: int, found: WriterSchema) -> None:
        """Compares what somebody says of an id with what is kept; raises `ConflictError` if it is another schema."""
        name = f"ids/{number}.json"
        kept = self._files.get(name)
        if kept is not None and self._decoded(name, kept.data, _Schema).schema.fingerprint != found.fingerprint:
            raise ConflictError(
                f"schema {number} is another one in {self._folder} than in the schema registry.",
                hint="the folder belongs to another registry, or the registry was made anew; records that are there"
                " are only read with the schemas that they were written with",
            )

    @staticmethod
    def _of_subject(subject: str, schema: WriterSchema) -> str:
        said = hashlib.sha256(f"{subject}\n{schema.fingerprint}".encode()).hexdigest()
        return f"subjects/{said}.json"

    def _decoded(self, name: str, data: bytes, kind: type[T]) -> T:
        return formats.decode(
            data, kind, FORMAT, f"{self._folder / name}", damaged="remove the file; the registry is asked again"
        )
