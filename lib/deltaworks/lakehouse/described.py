"""What a reader has to know about a table: columns with their meaning, what a row is, how fresh it is.

All of it is in the table itself, in Delta's log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from deltaworks.lakehouse import catalog, cuts, descriptions
from deltaworks.lakehouse.catalog import TableInfo
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.schema import Role

_NOTES = {
    Role.APPEND: "Rows are only added.",
    Role.CHANGELOG: "Rows are only added; op is 'upsert' or 'delete'. Count keys in the snapshot, not here.",
    Role.SNAPSHOT: "Rows change. They are right as of the time of the snapshot, which follows its changelog.",
    Role.WINDOWED: "A row changes until is_final is true. Sums over windows that are not final are preliminary.",
    Role.DEAD_LETTERS: "Rows are only added. A record is right in no other table of the pipeline.",
    Role.ARCHIVE: "Rows are only added. Key and value are bytes.",
}


@dataclass(frozen=True)
class ColumnDescribed:
    """A column."""

    name: str
    type: str
    """In Delta's notation."""
    meaning: str | None
    is_key: bool


@dataclass(frozen=True)
class TableDescribed:
    """A table, with what its pipeline says about it."""

    info: TableInfo
    description: str | None
    kind: str | None
    """None: no pipeline wrote it."""
    grain: str | None
    """What one row is."""
    note: str | None
    """What to heed in a query."""
    pipeline: str | None
    columns: tuple[ColumnDescribed, ...]
    partitioned_by: tuple[str, ...]
    cut: Cut | None
    """The batch as of which readers see it; None: it has none."""
    example: str
    """A query in SQL."""


def described(root: Path, name: str) -> TableDescribed:
    """Describes a table.

    Raises:
        TableError: there is no such table.
    """
    log = catalog.log_of(root, name)
    kind = log.properties.get(descriptions.KIND)
    role = Role(kind) if kind in {role.value for role in Role} else None
    keys = tuple(json.loads(log.properties.get(descriptions.KEY, "[]")))
    columns = tuple(
        ColumnDescribed(each["name"], _type(each["type"]), each["metadata"].get("comment"), each["name"] in keys)
        for each in json.loads(log.schema_text)["fields"]
    )
    cut = None if log.pipeline is None else cuts.latest(root, log.pipeline)
    return TableDescribed(
        catalog.info_of(log),
        log.definition.get("description"),
        kind,
        log.properties.get(descriptions.GRAIN),
        None if role is None else _NOTES[role],
        log.pipeline,
        columns,
        log.partition_by,
        cut if cut is not None and name in cut.tables and cut.query == log.owner else None,
        _example(name, role, keys),
    )


def _type(delta: object) -> str:
    """Lists and structs are JSON in Delta's log."""
    return delta if isinstance(delta, str) else json.dumps(delta)


def _example(name: str, role: Role | None, keys: tuple[str, ...]) -> str:
    table = name if name.isidentifier() else f'"{name}"'
    match role:
        case Role.WINDOWED:
            return f"SELECT * FROM {table} WHERE is_final ORDER BY window_start DESC LIMIT 10"
        case Role.CHANGELOG:
            return f"SELECT op, count(*) AS updates FROM {table} GROUP BY ALL"
        case Role.SNAPSHOT:
            return f"SELECT * FROM {table} ORDER BY {', '.join(keys) or 'ALL'} LIMIT 10"
        case Role.DEAD_LETTERS:
            return f"SELECT error_class, operator, count(*) AS records FROM {table} GROUP BY ALL ORDER BY records DESC"
        case Role.ARCHIVE:
            return f'SELECT topic, partition, max("offset") AS last FROM {table} GROUP BY ALL'
        case Role.APPEND:
            return f"SELECT * FROM {table} ORDER BY timestamp DESC LIMIT 10"
        case None:
            return f"SELECT * FROM {table} LIMIT 10"
