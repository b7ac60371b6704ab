"""The schemas of a pipeline, as its settings say where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltaworks.config import Reference
from deltaworks.kafka.kept_schemas import Kept
from deltaworks.kafka.schema_registry import Registry
from deltaworks.object_path import path_of
from deltaworks.serdes.schemas import NoRegistry, Registered, Schemas, WriterSchema

FOLDER = "schemas"
"""In the folder of what a pipeline needs to go on."""
_OPTIONS = {
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
}


@dataclass(frozen=True)
class SchemasOfSettings:
    """`Schemas` that can be sent to other processes, each of which asks the registry for itself.

    Args:
        settings: `[schema_registry]`; without `url`, only schemas that were met before are known.
        folder: keeps every schema from the moment when it is met.
        of_history: see `Kept`.
    """

    settings: Mapping[str, str | Reference] = field(repr=False)
    folder: Path
    of_history: bool = False

    def by_id(self, number: int) -> WriterSchema:
        """The schema with an id; raises as `Registry` and `Kept` do."""
        return self._schemas.by_id(number)

    def id_of(self, subject: str, schema: WriterSchema) -> int:
        """The id of a schema under a subject; raises as `Registry` and `Kept` do."""
        return self._schemas.id_of(subject, schema)

    def versions(self, subject: str) -> list[Registered]:
        """All versions of a subject, which only the registry knows."""
        return self._schemas.versions(subject)

    def refusal(self, subject: str, schema: WriterSchema) -> str | None:
        """Why a schema would be refused; raises as `Registry` does."""
        return self._schemas.refusal(subject, schema)

    def __reduce__(self) -> tuple[Any, ...]:
        """As text: how its store is reached, and where its copies are, the other process knows better."""
        return _again, (dict(self.settings), str(self.folder), self.of_history)

    @property
    def _schemas(self) -> Schemas:
        known = (str(self.folder), str(self.settings.get("url", "")), self.of_history)
        if known not in _OF_THIS_PROCESS:
            _OF_THIS_PROCESS[known] = Kept(self.folder, registry_of(self.settings), of_history=self.of_history)
        return _OF_THIS_PROCESS[known]


def registry_of(settings: Mapping[str, str | Reference]) -> Schemas:
    """The registry of `[schema_registry]` itself, which keeps nothing.

    Raises:
        ConfigurationError: a secret is not there, or the client is not installed.
    """
    found = {name: each.read() if isinstance(each, Reference) else each for name, each in settings.items()}
    if (url := found.get("url")) is None:
        return NoRegistry()
    options = {option: found[name] for name, option in _OPTIONS.items() if name in found}
    if "username" in found or "password" in found:
        options["basic.auth.user.info"] = f"{found.get('username', '')}:{found.get('password', '')}"
    return Registry(url, options=options, register=found.get("register") != "false")


def _again(settings: dict[str, str | Reference], folder: str, of_history: bool) -> SchemasOfSettings:
    return SchemasOfSettings(settings, path_of(folder), of_history)


_OF_THIS_PROCESS: dict[tuple[str, str, bool], Schemas] = {}
"""By folder and address: a client has connections, and knows what it was told."""
