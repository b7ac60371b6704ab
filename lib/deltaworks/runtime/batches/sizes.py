"""How large records are, as earlier batches have shown: a planner knows only offsets; a batch must fit in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from deltaworks.files import replace_file

UNKNOWN_BYTES = 65_536.0
"""Of a record of a topic of which nothing was read yet: the first batch is small, and shows how large they are."""
_FALLS = 0.2
_GROWTH = 1.25
_LEAST_BYTES = 64.0
"""What a record costs in memory even if it is empty."""


class RecordSizes:
    """Bytes per record of each topic. An estimate follows growth at once and shrinks slowly.

    Args:
        known: what an earlier planner has found out (`estimates`).
    """

    def __init__(self, known: Mapping[str, float] = MappingProxyType({})) -> None:
        self._estimates = dict(known)

    @property
    def estimates(self) -> dict[str, float]:
        """Topic -> bytes to plan with: the average of recent batches, and a quarter for growth."""
        return dict(self._estimates)

    def read(self, topic: str, records: int, size_bytes: int) -> None:
        """A batch has read that much: keys, values and headers. No record says nothing."""
        if records <= 0:
            return
        seen = max(_LEAST_BYTES, size_bytes / records) * _GROWTH
        before = self._estimates.get(topic, seen)
        self._estimates[topic] = seen if seen > before else before + _FALLS * (seen - before)


def read(path: Path) -> dict[str, float]:
    """What the driver has written; nothing, if that cannot be read: batches are small until it is known again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.DecodeError):
        return {}


def write(path: Path, sizes: RecordSizes) -> None:
    """Tells the planner, which lives in another process."""
    replace_file(path, msgspec.json.encode(sizes.estimates))
