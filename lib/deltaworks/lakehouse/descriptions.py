"""What a table and its columns mean, in its definition (Delta's `metaData`): `description`, comments and properties.

The pipeline says it, and a start brings what the table says up to date. Comments that others have added to columns of
which the pipeline says nothing stay: a property of the table names the columns whose comments are the pipeline's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltaworks.lakehouse.schema import Role, TableSchema

PROPERTY = "deltaworks.comments"
"""The columns whose comments are ours, as JSON; "" is the description of the table."""
KIND, GRAIN, KEY = "deltaworks.kind", "deltaworks.grain", "deltaworks.key"
"""Properties: the kind of the table, what one row is, and the columns of the key, as JSON."""
PROPERTIES = (PROPERTY, KIND, GRAIN, KEY)
_GRAINS = {
    Role.APPEND: "a record of the stream",
    Role.CHANGELOG: "an update of a key",
    Role.SNAPSHOT: "a key that exists",
    Role.WINDOWED: "a key and a window",
    Role.DEAD_LETTERS: "a record that could not be processed",
    Role.ARCHIVE: "a record as it was in Kafka",
}


def properties_of(schema: TableSchema) -> dict[str, str]:
    """The values of the properties."""
    return {
        PROPERTY: json.dumps([*([] if schema.description is None else [""]), *schema.comments]),
        KIND: schema.role.value,
        GRAIN: _GRAINS[schema.role],
        KEY: json.dumps(schema.key_names),
    }


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
    properties = {**definition["configuration"], **properties_of(schema), **more}
    if not changed and description == definition.get("description") and properties == definition["configuration"]:
        return dict(definition)
    return {
        **definition,
        "description": description,
        "schemaString": json.dumps(columns, separators=(",", ":"), ensure_ascii=False)
        if changed
        else definition["schemaString"],
        "configuration": properties,
    }


def _ours(definition: Mapping[str, Any]) -> set[str]:
    try:
        return set(map(str, json.loads(definition["configuration"].get(PROPERTY, "[]"))))
    except (ValueError, TypeError):
        return set()  # somebody has changed the property
