"""Estimates record sizes from earlier batches: a planner knows only offsets, but a batch must fit in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from deltaworks.files import replace_file

UNKNOWN_BYTES = 65_536.0
"""The estimate for a topic that was never read: the first batch is small, and shows how large the records are."""
_FALLS = 0.2
_GROWTH = 1.25
_LEAST_BYTES = 64.0
"""The memory of a record, even if it is empty."""


class RecordSizes:
    """Bytes per record of each topic. An estimate follows growth at once and shrinks slowly.

    Args:
        known: the estimates of an earlier planner (`estimates`).
    """

    def __init__(self, known: Mapping[str, float] = MappingProxyType({})) -> None:
        self._estimates = dict(known)

    @property
    def estimates(self) -> dict[str, float]:
        """Topic -> bytes to plan with: the average of recent batches plus a quarter for growth."""
        return dict(self._estimates)

    def read(self, topic: str, records: int, size_bytes: int) -> None:
        """Learns from what a batch has read: keys, values and headers. A read without records changes nothing."""
        if records <= 0:
            return
        seen = max(_LEAST_BYTES, size_bytes / records) * _GROWTH
        before = self._estimates.get(topic, seen)
        self._estimates[topic] = seen if seen > before else before + _FALLS * (seen - before)


def read(path: Path) -> dict[str, float]:
    """The estimates that the driver has written. If they cannot be read: none, so batches begin small again."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    except (OSError, msgspec.DecodeError):
        return {}


def write(path: Path, sizes: RecordSizes) -> None:
    """Passes the estimates to the planner, which lives in another process."""
    replace_file(path, msgspec.json.encode(sizes.estimates))
