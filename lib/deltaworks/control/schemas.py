"""The schemas of a pipeline's records, compared with those of the registry before it is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deltaworks.errors import ConfigurationError, ConflictError, SchemasUnavailableError
from deltaworks.serdes.in_registry import InRegistry
from deltaworks.serdes.schemas import Registered, Schemas, WriterSchema
from deltaworks.topology.plan import Plan
from deltaworks.topology.registered import Use, uses


@dataclass(frozen=True)
class Checked:
    """What a comparison has found."""

    lines: tuple[str, ...]
    """What the user should know."""
    new: tuple[tuple[str, WriterSchema], ...]
    """Subject and schema of what is written and not registered yet."""

    def register(self, schemas: Schemas) -> list[str]:
        """Registers the new schemas.

        Args:
            schemas: where.

        Returns:
            Their subjects.

        Raises:
            ConflictError: somebody has registered another schema since.
            SchemasUnavailableError: the registry does not answer.
        """
        for subject, schema in self.new:
            schemas.id_of(subject, schema)
        return [subject for subject, _ in self.new]


def check(plan: Plan, schemas: Schemas) -> Checked:
    """Compares the formats of a plan with the registry; changes nothing.

    What is read has to be readable if it was written with the newest version of its subject: an older one may be in
    records that are read no more, so it makes a line only. What is written has to be what the registry accepts.

    Args:
        plan: bound to the registry.
        schemas: the registry.

    Raises:
        ConflictError: a schema does not fit, by field.
        ConfigurationError: a schema is written with a registry, and the settings name none.
        SchemasUnavailableError: the registry does not answer, and a schema is written that is not known yet.
    """
    lines: list[str] = []
    problems: list[str] = []
    new: list[tuple[str, WriterSchema]] = []
    for use in uses(plan):
        try:
            if use.topics:
                for problem, is_newest in _unreadable(use, schemas.versions(use.subject)):
                    (problems if is_newest else lines).append(problem)
            elif (why := schemas.refusal(use.subject, use.serde.writer_schema)) is not None:
                problems.append(_refused(use, why, schemas))
            elif not _is_there(use, schemas):
                new.append((use.subject, use.serde.writer_schema))
        except SchemasUnavailableError as error:
            if not use.topics:
                raise
            lines.append(f"the versions of '{use.subject}' were not compared: {error.message}")
    if problems:
        raise ConflictError(
            "\n  ".join(["formats do not fit the schema registry:", *problems]),
            hint="change the type or its schema, use another subject or topic, or change what the registry accepts",
        )
    return Checked(tuple(lines), tuple(new))


def _unreadable(use: Use, versions: list[Registered]) -> Iterator[tuple[str, bool]]:
    """What is said of each version that cannot be read, and whether it is the newest."""
    for each in versions:
        if reasons := _unreadable_by(use.serde, each.schema):
            is_newest = each is versions[-1]
            who = f"version {each.version} of '{use.subject}'{', the newest,' if is_newest else ''}"
            told = f"{use.of} that were written with {who} cannot be read as {use.serde.name}: {'; '.join(reasons)}"
            yield told, is_newest


def _is_there(use: Use, schemas: Schemas) -> bool:
    """Whether the schema of what is written is registered; False also if the registry is away, and it is known here."""
    try:
        return any(each.schema == use.serde.writer_schema for each in schemas.versions(use.subject))
    except SchemasUnavailableError:
        return False


def _refused(use: Use, why: str, schemas: Schemas) -> str:
    told = f"{use.of} cannot be registered as {use.serde.name} under '{use.subject}': {why}"
    versions = schemas.versions(use.subject)
    reasons = _unreadable_by(use.serde, versions[-1].schema) if versions else []
    return f"{told}: {'; '.join(reasons)}" if reasons else told


def _unreadable_by(serde: InRegistry[Any], writer: WriterSchema) -> list[str]:
    try:
        return serde.unreadable(writer)
    except (ValueError, ConfigurationError) as error:
        return [str(error)]
