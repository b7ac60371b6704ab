"""What a system wrote to its output topic: counts, and a hash that two exact systems must share.

Read as a consumer with `isolation.level=read_committed` sees it. The hash does not depend on the order in which
records of different keys arrived:

- `final`: the last value per key (a windowed key holds its window), tombstones removed, with its timestamp;
- `every`: each record with its timestamp, for topologies that neither drop nor replace updates.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import Consumer, KafkaError, TopicPartition

HashKind = Literal["final", "every"]
_MODULUS = 1 << 128


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The contents of an output topic."""

    records_out: int
    tombstones: int
    keys: int
    """Distinct keys that are alive at the end; 0 for `every`."""
    result_hash: str


def _digest(key: bytes, value: bytes, timestamp_ms: int) -> int:
    framed = b"%d:%d:" % (len(key), timestamp_ms) + key + value
    return int.from_bytes(hashlib.blake2b(framed, digest_size=16).digest(), "big")


def read_outcome(bootstrap: str, topic: str, kind: HashKind, partitions: int) -> Outcome:
    """Reads a topic to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark-outcome",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 20_000,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    final: dict[bytes, tuple[int, bytes]] = {}
    open_partitions = set(range(partitions))
    total = tombstones = accumulated = 0
    try:
        while open_partitions:
            for message in consumer.consume(2_000, timeout=5.0):
                if (error := message.error()) is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise RuntimeError(f"reading {topic}: {error}")
                    open_partitions.discard(message.partition() or 0)
                    continue
                total += 1
                key, value = message.key() or b"", message.value()
                timestamp_ms = message.timestamp()[1]
                if value is None:
                    tombstones += 1
                    final.pop(key, None)
                elif kind == "every":
                    accumulated += _digest(key, value, timestamp_ms)
                else:
                    final[key] = (timestamp_ms, value)
    finally:
        consumer.close()
    for key, (timestamp_ms, value) in final.items():
        accumulated += _digest(key, value, timestamp_ms)
    return Outcome(
        records_out=total,
        tombstones=tombstones,
        keys=len(final),
        result_hash=f"{accumulated % _MODULUS:032x}",
    )
