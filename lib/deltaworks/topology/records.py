"""What every layer knows about a record: its headers, and where it was read from."""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

Header: TypeAlias = tuple[str, bytes | None]
"""Name and value."""
Headers: TypeAlias = tuple[Header, ...]
"""Kafka record headers: order and repeated names matter."""
_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)@(?P<offset>[0-9]+)")


class Coordinates(msgspec.Struct, frozen=True, array_like=True):
    """Where the record in process came from."""

    topic: str
    """Empty if a punctuator made the record."""
    partition: int
    offset: int

    @classmethod
    def of(cls, name: str) -> Coordinates:
        """The coordinates in the form of `name`.

        Raises:
            ValueError: the text does not have that form.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} names no record; expected TOPIC-PARTITION@OFFSET")
        return cls(match["topic"], int(match["partition"]), int(match["offset"]))

    @property
    def name(self) -> str:
        """`topic-partition@offset`, as people write it."""
        return f"{self.topic}-{self.partition}@{self.offset}"
