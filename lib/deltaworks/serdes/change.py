"""An update of a table, and its bytes when an exchange carries it to be regrouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from deltaworks.serdes.base import Serde

_OLD, _NEW, _BOTH, _LATE = 0, 1, 2, 3
"""The last byte says which values are present; plus `_LATE` for an update that is not the latest of its row."""
_LENGTH_BYTES = 4


class Change(msgspec.Struct, frozen=True, gc=False):
    """The value of a record of a table: what a row is now and what it was; `new` is None for a delete."""

    new: Any
    old: Any = None
    """Set only where a reader asked for old values, else None."""
    is_latest: bool = True
    """False for an out-of-order update of a versioned table, whose row already has a later value."""


@dataclass(frozen=True)
class ChangeSerde:
    """Updates with at least one value; both values go into one record if the key stays (KIP-904).

    Args:
        inner: serde of the values.
    """

    inner: Serde[Any]

    @property
    def name(self) -> str:
        return f"change({self.inner.name})"

    @property
    def type(self) -> Any:
        return Change

    def serialize(self, value: Change) -> bytes:
        late = 0 if value.is_latest else _LATE
        if value.old is None:
            return self.inner.serialize(value.new) + bytes((_NEW + late,))
        old = self.inner.serialize(value.old)
        if value.new is None:
            return old + bytes((_OLD + late,))
        new = self.inner.serialize(value.new)
        return len(new).to_bytes(_LENGTH_BYTES, "big") + new + old + bytes((_BOTH + late,))

    def deserialize(self, data: bytes) -> Change:
        read, kind = self.inner.deserialize, data[-1]
        values, is_latest = kind % _LATE, kind < _LATE
        if values == _OLD:
            return Change(None, read(data[:-1]), is_latest)
        if values == _NEW:
            return Change(read(data[:-1]), None, is_latest)
        middle = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "big")
        return Change(read(data[_LENGTH_BYTES:middle]), read(data[middle:-1]), is_latest)
