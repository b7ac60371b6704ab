"""How far sinks of Kafka Connect are behind their topics, by offsets alone.

How far a source is behind its database, only the connector itself knows, and tells nobody but JMX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from deltaworks import clock
from deltaworks.config import Kafka
from deltaworks.connect.answers import Offset
from deltaworks.connect.api import ConnectApi
from deltaworks.connectors.dead_letters import SOON_S, require_cluster
from deltaworks.errors import ConfigurationError, ConnectUnavailableError, KafkaTopicError, TransientError
from deltaworks.kafka import admin
from deltaworks.kafka.admin import Position


class Turns:
    """Lets those come first that were not asked the last time, when it had taken too long."""

    def __init__(self) -> None:
        self._last = ""

    def of(self, names: Iterable[str]) -> Iterator[str]:
        """The names, from the one on behind that after which nobody wanted another."""
        for name in sorted(names, key=lambda name: (name <= self._last, name)):
            yield name
            self._last = name


def lags_soon(kafka: Kafka, api: ConnectApi, sinks: Iterable[str], *, within_s: float) -> dict[str, int]:
    """Sink -> the records of its topics that it has not committed; those of which that is not known soon are left out.

    Partitions of which a sink has committed nothing yet do not count.

    Args:
        kafka: the cluster that they work with.
        api: of a worker.
        sinks: their names.
        within_s: after that, no other sink is asked; Kafka Connect needs a moment for each.
    """
    until = clock.ticks_s() + within_s
    held: dict[str, dict[Position, int]] = {}
    for name in sinks:
        if clock.ticks_s() > until:
            break
        try:
            held[name] = _positions(api.offsets(name))
        except (ConfigurationError, ConnectUnavailableError):  # deleted just now, or a worker older than 3.5
            continue
    topics = sorted({topic for positions in held.values() for topic, _ in positions})
    if not topics:
        return dict.fromkeys(held, 0)
    try:
        require_cluster(kafka, api, timeout_s=SOON_S)
        there = admin.partition_counts_of(admin.admin(kafka), timeout_s=SOON_S)
        ends = admin.end_offsets(kafka, [topic for topic in topics if topic in there], timeout_s=SOON_S)
    except (ConfigurationError, KafkaTopicError, TransientError):  # a topic was deleted just now
        return {}
    return {name: _behind(positions, ends) for name, positions in held.items()}


def _positions(offsets: Sequence[Offset]) -> dict[Position, int]:
    found = {}
    for each in offsets:
        topic, partition = each.partition.get("kafka_topic"), each.partition.get("kafka_partition")
        offset = (each.offset or {}).get("kafka_offset")
        if isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int):
            found[topic, partition] = offset
    return found


def _behind(positions: Mapping[Position, int], ends: Mapping[Position, int]) -> int:
    return sum(max(0, ends[at] - offset) for at, offset in positions.items() if at in ends)
