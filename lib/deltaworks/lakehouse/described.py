"""What a reader has to know about a table: columns with their meaning, what a row is, how fresh it is.

All of it is in the table itself, in Delta's log. Of a table that does not exist yet, its `Definition` says what the log
will say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema

from deltaworks.errors import TableError
from deltaworks.lakehouse import catalog, cuts, descriptions
from deltaworks.lakehouse.catalog import TableInfo
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.log import DeltaLog
from deltaworks.lakehouse.reading import options
from deltaworks.lakehouse.schema import Role, TableSchema
from deltaworks.names import hint_of

_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True)
class ColumnDescribed:
    """A column."""

    name: str
    type: str
    """In Delta's notation, in one line: `array<struct<name: string, value: binary>>`."""
    meaning: str | None
    is_key: bool


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a table is, which no batch changes; None: its maker does not say."""

    name: str
    description: str | None
    kind: str | None
    """None: neither a pipeline nor a batch job wrote it."""
    grain: str | None
    """What one row is."""
    note: str | None
    """Which rows may still change, and what to heed in a query."""
    as_of: str | None
    """What the time means as of which readers see the table."""
    pipeline: str | None
    columns: tuple[ColumnDescribed, ...]
    partitioned_by: tuple[str, ...]
    example: str
    """A query in DuckDB's SQL."""

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.is_key)


@dataclass(frozen=True, kw_only=True)
class TableDescribed(Meaning):
    """A table that exists."""

    info: TableInfo
    cut: Cut | None
    """The batch as of which readers see it; None: it has none."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A table before it exists."""

    name: str
    description: str | None
    columns: pa.Schema
    """With comments."""
    properties: Mapping[str, str]
    """See `descriptions`."""
    partitioned_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema) -> Definition:
        """The definition of a pipeline's table."""
        return cls(
            name=schema.name,
            description=schema.description,
            columns=schema.commented,
            properties=descriptions.properties_of(schema),
            partitioned_by=schema.partition_by,
        )

    @property
    def meaning(self) -> Meaning:
        fields = json.loads(Schema.from_arrow(self.columns).to_json())["fields"]
        return Meaning(**_told(self.name, fields, self.description, self.properties, self.partitioned_by))

    def create(self, root: Path, *, instead: bool = False, **properties: str) -> None:
        """Creates the table, without rows; for tables that delta-rs writes.

        Args:
            root: the folder of all tables.
            instead: in place of one that has another definition; else one that exists stays as it is.
            properties: further ones, Delta's own.
        """
        DeltaTable.create(
            str(root / self.name),
            schema=Schema.from_arrow(self.columns),
            mode="overwrite" if instead else "ignore",
            description=self.description,
            partition_by=list(self.partitioned_by),
            configuration={**self.properties, **properties},
            raise_if_key_not_exists=False,
            storage_options=options(root / self.name),
        )

    def is_that_of(self, table: DeltaTable) -> bool:
        """Whether a table has these columns, words and properties."""
        metadata = table.metadata()
        return (
            json.loads(table.schema().to_json()) == json.loads(Schema.from_arrow(self.columns).to_json())
            and metadata.description == self.description
            and self.properties.items() <= metadata.configuration.items()
        )


def described(root: Path, name: str) -> TableDescribed:
    """Describes a table.

    Raises:
        TableError: there is no such table.
    """
    if name not in (known := catalog.table_names(root)):
        raise TableError(f"There is no Delta table '{name}' below {root}.", hint=hint_of(name, known, "tables"))
    return of_log(root, catalog.log_of(root, name))


def all_described(root: Path) -> list[TableDescribed]:
    """Describes all tables below a folder, in the order of their names."""
    return [of_log(root, catalog.log_of(root, name)) for name in catalog.table_names(root)]


def of_log(root: Path, log: DeltaLog) -> TableDescribed:
    """Describes the table of a log that was read."""
    name = log.path.name
    fields = json.loads(log.schema_text)["fields"]
    cut = None if log.pipeline is None else cuts.latest(root, log.pipeline)
    told = _told(name, fields, log.definition.get("description"), log.properties, log.partition_by)
    return TableDescribed(
        **{**told, "pipeline": log.pipeline},
        info=catalog.info_of(log),
        cut=cut if cut is not None and name in cut.tables and cut.query == log.owner else None,
    )


def _told(
    name: str,
    fields: list[dict[str, Any]],
    description: str | None,
    properties: Mapping[str, str],
    partitioned_by: tuple[str, ...],
) -> dict[str, Any]:
    """The arguments of `Meaning`."""
    kind = properties.get(descriptions.KIND)
    keys = tuple(json.loads(properties.get(descriptions.KEY, "[]")))
    if kind in _ROLES:  # a pipeline that has not started since says less than a new one
        properties = {**descriptions.of_role(_ROLES[kind], name, keys), **properties}
    return {
        "name": name,
        "description": description,
        "kind": kind,
        "grain": properties.get(descriptions.GRAIN),
        "note": properties.get(descriptions.NOTE),
        "as_of": properties.get(descriptions.AS_OF),
        "pipeline": properties.get(descriptions.PIPELINE),
        "columns": tuple(
            ColumnDescribed(
                each["name"], type_text(each["type"]), each["metadata"].get("comment"), each["name"] in keys
            )
            for each in fields
        ),
        "partitioned_by": partitioned_by,
        "example": properties.get(descriptions.EXAMPLE) or f"SELECT * FROM {_quoted(name)} LIMIT 10",
    }


def type_text(delta: Any) -> str:
    """A type of Delta's log in one line."""
    match delta:
        case {"type": "struct", "fields": fields}:
            return "struct<" + ", ".join(f"{each['name']}: {type_text(each['type'])}" for each in fields) + ">"
        case {"type": "array", "elementType": element}:
            return f"array<{type_text(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{type_text(key)}, {type_text(value)}>"
        case _:
            return str(delta)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'
