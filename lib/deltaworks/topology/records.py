"""What every layer says about a record: its headers, and where it was read from."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Kafka record headers: order and repeated names matter."""


class Coordinates(msgspec.Struct, frozen=True, array_like=True):
    """Where the record in process came from."""

    topic: str
    """Empty if it came from nowhere: a punctuator made it."""
    partition: int
    offset: int
