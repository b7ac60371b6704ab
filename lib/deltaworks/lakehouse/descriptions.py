"""What a table and its columns mean, in its definition (Delta's `metaData`): `description`, comments and properties.

The properties are for readers of every engine: what a row is, which rows may change, as of when readers see them, which
pipeline writes the table, and a query to begin with.

The pipeline says it, and a start brings what the table says up to date. Comments that others have added to columns of
which the pipeline says nothing stay: a property of the table names the columns whose comments are the pipeline's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from deltaworks.lakehouse.schema import Role, TableSchema

PROPERTY = "deltaworks.comments"
"""The columns whose comments are ours, as JSON; "" is the description of the table."""
KIND, GRAIN, KEY = "deltaworks.kind", "deltaworks.grain", "deltaworks.key"
"""Properties: the kind of the table, what one row is, and the columns of the key, as JSON."""
NOTE, AS_OF = "deltaworks.note", "deltaworks.as-of"
"""Properties: which rows may still change (what `is_final` says, where there is one), and what the time means as of
which readers see the table."""
EXAMPLE, PIPELINE = "deltaworks.example", "deltaworks.pipeline"
"""Properties: a query of DuckDB to begin with, and the pipeline that writes the table."""
PROPERTIES = (PROPERTY, KIND, GRAIN, KEY, NOTE, AS_OF, EXAMPLE, PIPELINE)
_BATCHES = "The table has all rows of the batches that the pipeline had committed by then, and none of a later one."


@dataclass(frozen=True)
class _Words:
    grain: str
    note: str
    as_of: str = _BATCHES


_WORDS = {
    Role.APPEND: _Words("a record of the stream", "Rows are only added. Each is final."),
    Role.CHANGELOG: _Words(
        "an update of a key",
        "Rows are only added. Each is final; op is 'upsert' or 'delete'. Count keys in the snapshot, not here.",
    ),
    Role.SNAPSHOT: _Words(
        "a key that exists",
        "Rows change. None is final; they are right as of the time of the snapshot, which follows its changelog.",
        "Each key has the row that the updates up to then have given it: the batch is one that the snapshot shows.",
    ),
    Role.WINDOWED: _Words(
        "a key and a window",
        "A row changes until is_final is true: then every further record is too late for its window. Sums over windows "
        "that are not final are preliminary.",
    ),
    Role.DEAD_LETTERS: _Words(
        "a record that could not be processed",
        "Rows are only added. Each is final; a record is right in no other table of the pipeline.",
    ),
    Role.ARCHIVE: _Words("a record as it was in Kafka", "Rows are only added. Each is final. Key and value are bytes."),
}


def properties(
    *,
    kind: str,
    grain: str,
    key: Sequence[str],
    note: str,
    as_of: str,
    example: str,
    pipeline: str | None = None,
) -> dict[str, str]:
    """The properties that say what a table is."""
    told = {KIND: kind, GRAIN: grain, KEY: json.dumps(list(key)), NOTE: note, AS_OF: as_of, EXAMPLE: example}
    return told if pipeline is None else {**told, PIPELINE: pipeline}


def properties_of(schema: TableSchema) -> dict[str, str]:
    """The values of the properties, for a table of a pipeline."""
    return {
        PROPERTY: json.dumps([*([] if schema.description is None else [""]), *schema.comments]),
        **of_role(schema.role, schema.name, schema.key_names, schema.pipeline),
    }


def of_role(role: Role, table: str, key: Sequence[str], pipeline: str | None = None) -> dict[str, str]:
    """What follows from the role of a table."""
    words = _WORDS[role]
    return properties(
        kind=role.value,
        grain=words.grain,
        key=key,
        note=words.note,
        as_of=words.as_of,
        example=_example(role, table, key),
        pipeline=pipeline,
    )


def _example(role: Role, table: str, key: Sequence[str]) -> str:
    match role:
        case Role.WINDOWED:
            return f"SELECT * FROM {table} WHERE is_final ORDER BY window_start DESC LIMIT 10"
        case Role.CHANGELOG:
            return f"SELECT op, count(*) AS updates FROM {table} GROUP BY ALL"
        case Role.SNAPSHOT:
            return f"SELECT * FROM {table} ORDER BY {', '.join(key) or 'ALL'} LIMIT 10"
        case Role.DEAD_LETTERS:
            return f"SELECT error_class, operator, count(*) AS records FROM {table} GROUP BY ALL ORDER BY records DESC"
        case Role.ARCHIVE:
            return f'SELECT topic, partition, max("offset") AS last FROM {table} GROUP BY ALL'
        case Role.APPEND:
            return f"SELECT * FROM {table} ORDER BY timestamp DESC LIMIT 10"
        case _:
            assert_never(role)


def described(definition: Mapping[str, Any], schema: TableSchema, more: Mapping[str, str]) -> dict[str, Any]:
    """The definition with what `schema` says, and more properties; unchanged if it says that already."""
    ours = _ours(definition)
    columns = json.loads(definition["schemaString"])
    changed = False
    for column in columns["fields"]:
        name, metadata = column["name"], column["metadata"]
        wanted = schema.comments.get(name, None if name in ours else metadata.get("comment"))
        if wanted != metadata.get("comment"):
            changed = True
            column["metadata"] = {key: text for key, text in metadata.items() if key != "comment"}
            column["metadata"] |= {} if wanted is None else {"comment": wanted}
    description = schema.description
    if description is None and "" not in ours:
        description = definition.get("description")
    told = {**definition["configuration"], **properties_of(schema), **more}
    if not changed and description == definition.get("description") and told == definition["configuration"]:
        return dict(definition)
    return {
        **definition,
        "description": description,
        "schemaString": json.dumps(columns, separators=(",", ":"), ensure_ascii=False)
        if changed
        else definition["schemaString"],
        "configuration": told,
    }


def _ours(definition: Mapping[str, Any]) -> set[str]:
    try:
        return set(map(str, json.loads(definition["configuration"].get(PROPERTY, "[]"))))
    except (ValueError, TypeError):
        return set()  # somebody has changed the property
