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
ALL: Offsets = dict.fromkeys(range(64), sys.maxsize)
"""After the last record of each partition."""


@dataclass
class Records:
    """The records of a topic by key. A key has one partition, and another one after the topic has grown."""

    offsets: dict[str, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    times_ms: dict[str, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    values: dict[str, dict[int, list[str | None]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def before(self, key: str, ends: Offsets) -> dict[int, int]:
        """Partition -> how many records of a key are before some offsets."""
        parts = self.offsets.get(key, {})
        return {part: bisect_left(offsets, ends[part]) for part, offsets in parts.items() if ends.get(part, 0)}

    def number(self, key: str, ends: Offsets) -> int:
        """How many records of a key are before some offsets."""
        return sum(self.before(key, ends).values())

    def counts(self, ends: Offsets) -> dict[str, int]:
        """Records of each key."""
        return {key: number for key in self.offsets if (number := self.number(key, ends))}

    def windows(self, key: str, ends: Offsets, size_ms: int) -> dict[int, int]:
        """Start of each window of a key -> its records."""
        found: dict[int, int] = defaultdict(int)
        for part, number in self.before(key, ends).items():
            for time_ms in self.times_ms[key][part][:number]:
                found[time_ms - time_ms % size_ms] += 1
        return dict(sorted(found.items()))

    def last(self, key: str, ends: Offsets) -> str | None:
        """The value of a key in a table whose records are written in the order of their times."""
        seen = [
            (self.times_ms[key][part][number - 1], self.values[key][part][number - 1])
            for part, number in self.before(key, ends).items()
            if number
        ]
        return max(seen)[1] if seen else None


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
            found.offsets[key][part].append(offset)
            found.times_ms[key][part].append(message.timestamp()[1])
            found.values[key][part].append(None if value is None else value.decode())
            if offset + 1 >= ends[part]:
                ends[part] = 0
    finally:
        consumer.close()
    return found
