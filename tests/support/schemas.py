"""A schema registry that is not there."""

from __future__ import annotations

from typing import NoReturn

from deltaworks.errors import SchemasUnavailableError
from deltaworks.serdes.schemas import WriterSchema


class Away:
    """A registry that does not answer."""

    def by_id(self, number: int) -> NoReturn:
        """Raises `SchemasUnavailableError`, as all others."""
        self._asked(f"schema {number}")

    def id_of(self, subject: str, schema: WriterSchema) -> NoReturn:
        """Raises."""
        self._asked(subject)

    def versions(self, subject: str) -> NoReturn:
        """Raises."""
        self._asked(subject)

    def refusal(self, subject: str, schema: WriterSchema) -> NoReturn:
        """Raises."""
        self._asked(subject)

    def _asked(self, what: str) -> NoReturn:
        raise SchemasUnavailableError(f"the registry does not answer when asked for {what}")
