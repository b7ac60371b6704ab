"""Ranges of offsets that one micro-batch reads."""

from __future__ import annotations

import msgspec

Offsets = dict[str, dict[str, int]]
"""`{topic: {partition: next offset}}`; partitions are strings, because Spark keeps offsets as JSON."""


def of_topics(offsets: Offsets) -> Offsets:
    """Those of topics: names that begin with `!` stand for something else, see `spark.source`."""
    return {topic: parts for topic, parts in offsets.items() if not topic.startswith("!")}


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Records of one topic-partition: `start <= offset < stop`."""

    topic: str
    partition: int
    start: int
    stop: int
