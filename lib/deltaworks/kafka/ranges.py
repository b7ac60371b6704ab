"""Ranges of offsets that one micro-batch reads."""

from __future__ import annotations

import msgspec

Offsets = dict[str, dict[str, int]]
"""`{topic: {partition: next offset}}`; partitions are strings, because Spark keeps offsets as JSON."""


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Records of one topic-partition: `start <= offset < stop`."""

    topic: str
    partition: int
    start: int
    stop: int
