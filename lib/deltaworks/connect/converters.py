"""Converters of Kafka Connect, by name: how keys and values are bytes in Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from deltaworks.connect.values import Value
from deltaworks.errors import ConfigurationError
from deltaworks.names import hint_of

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
Converter: TypeAlias = str
"""`json` (without a schema), `json-with-schema`, `string`, `bytes`, or a class in full."""
_BY_NAME: Mapping[str, tuple[str, bool | None]] = {
    "json": (JSON_CONVERTER, False),
    "json-with-schema": (JSON_CONVERTER, True),
    "string": (STRING_CONVERTER, None),
    "bytes": (BYTES_CONVERTER, None),
}
"""Name -> class, and whether each record has its schema."""


def settings_of(connector: str, key: Converter | None, value: Converter | None) -> dict[str, Value]:
    """The settings of the converters that are given.

    Raises:
        ConfigurationError: there is no such converter.
    """
    found: dict[str, Value] = {}
    for side, name in (("key", key), ("value", value)):
        if name is None:
            continue
        if not isinstance(name, str) or ("." not in name and name not in _BY_NAME):
            raise ConfigurationError(
                f"Connector '{connector}': there is no {side}_converter={name!r}.",
                hint=f"{hint_of(str(name), _BY_NAME, 'converters')} A class is written in full",
            )
        class_, schemas = _BY_NAME.get(name, (name, None))
        found[f"{side}.converter"] = class_
        if schemas is not None:
            found[f"{side}.converter.schemas.enable"] = schemas
    return found


def require_one_way(connector: str, plain_json: bool, key: Converter | None, value: Converter | None) -> None:
    """Raises `ConfigurationError` if `plain_json` and converters both say how records are bytes."""
    if plain_json and (key is not None or value is not None):
        raise ConfigurationError(
            f"Connector '{connector}' has plain_json= and converters: both say how records are bytes.",
            hint='key_converter="json", value_converter="json" without plain_json=',
        )
