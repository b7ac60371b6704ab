"""Schemas that Kafka Connect's JSON converter writes in front of a record."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import msgspec


class Column(msgspec.Struct, eq=False, dict=True, rename={"at": "field", "kind": "type"}):
    """A column, or the struct that has columns; equal only to itself, so that it is found without a comparison."""

    kind: str
    at: str | None = None
    """The name of the column."""
    name: str | None = None
    """What its values mean, such as `io.debezium.time.Date`."""
    parameters: Mapping[str, Any] = {}
    fields: tuple[Column, ...] = ()
    items: Column | None = None

    @cached_property
    def parts(self) -> dict[str, Column]:
        """Its columns by their names."""
        return {each.at: each for each in self.fields if each.at is not None}

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return self.name or self.kind


@lru_cache(maxsize=200)
def column_of(schema: bytes) -> Column:
    """A schema; the same object as long as records have the same one.

    Raises:
        msgspec.MsgspecError: it is none of Kafka Connect.
    """
    return msgspec.json.decode(schema, type=Column)
