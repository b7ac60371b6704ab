"""What stores hold after some offsets, computed from the records of the topics alone."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

_POLL_S = 10.0
Offsets = Mapping[int, int]
ALL: Offsets = defaultdict(lambda: sys.maxsize)
"""After the last record of each partition."""


@dataclass
class Records:
    """The records of a topic by key: a key is in one partition."""

    partition: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    times_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    values: dict[str, list[str | None]] = field(default_factory=lambda: defaultdict(list))

    def number(self, key: str, ends: Offsets) -> int:
        """How many records of a key are before some offsets."""
        if key not in self.partition:
            return 0
        return bisect_left(self.offsets[key], ends[self.partition[key]])

    def counts(self, ends: Offsets) -> dict[str, int]:
        """Records of each key."""
        return {key: number for key in self.offsets if (number := self.number(key, ends))}

    def windows(self, key: str, ends: Offsets, size_ms: int) -> dict[int, int]:
        """Start of each window of a key -> its records."""
        found: dict[int, int] = defaultdict(int)
        for time_ms in self.times_ms.get(key, [])[: self.number(key, ends)]:
            found[time_ms - time_ms % size_ms] += 1
        return dict(sorted(found.items()))

    def last(self, key: str, ends: Offsets) -> str | None:
        """The value of a key in a table."""
        number = self.number(key, ends)
        return self.values[key][number - 1] if number else None


def records(bootstrap: str, topic: str) -> Records:
    """All records of a topic."""
    found = Records()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "history", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        parts = consumer.list_topics(topic, timeout=_POLL_S).topics[topic].partitions
        ends = {part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=_POLL_S)[1] for part in parts}
        consumer.assign([TopicPartition(topic, part, 0) for part in parts])
        while any(ends.values()):
            message = consumer.poll(_POLL_S)
            assert message is not None and message.error() is None, message
            part, offset, key = message.partition(), message.offset(), (message.key() or b"").decode()
            assert part is not None and offset is not None
            value = message.value()
            found.partition[key] = part
            found.offsets[key].append(offset)
            found.times_ms[key].append(message.timestamp()[1])
            found.values[key].append(None if value is None else value.decode())
            if offset + 1 >= ends[part]:
                ends[part] = 0
    finally:
        consumer.close()
    return found
