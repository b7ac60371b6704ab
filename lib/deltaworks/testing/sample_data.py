"""Sample data for topics: its records, and the producer of `deltaworks produce`.

A module `jobs/sample_data/NAME.py` has `records(count, seed)`, an endless, deterministic simulation that is cut after
`count` records of its main topic. A larger number continues a smaller one, so `produce` can continue where an earlier
call stopped. Its records are like those of a real topic, trouble included; the `kind` of each says what it is an
example of.

Where records begin with ids of schemas, `records(count, seed, schemas)` gets the registry that gives them, too.
"""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from deltaworks.clock import ticks_s
from deltaworks.config import Kafka
from deltaworks.errors import DeltaworksError, KafkaTopicError, KafkaWriteError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

    from deltaworks.serdes.schemas import Schemas


@dataclass(frozen=True)
class SampleRecord:
    """One record for Kafka."""

    topic: str
    partition: int | None
    """Partition; None: decided by the key, as Kafka's own clients do."""
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    kind: Enum
    """What it is an example of; the value is its line in the census."""


class SampleData(Protocol):
    """The interface of a module of sample data."""

    MAIN_TOPIC: str
    """The topic whose records are counted."""

    def records(self, count: int = ..., seed: int = ...) -> Iterator[SampleRecord]:
        """All records up to the `count`th of the main topic."""


def records_of(data: SampleData, count: int, seed: int, schemas: Schemas) -> Iterator[SampleRecord]:
    """The records of a module.

    Args:
        data: the module.
        count: of the main topic.
        seed: of the simulation.
        schemas: the registry of the pipeline, for a module that asks for one.
    """
    more: dict[str, Any] = {"schemas": schemas} if "schemas" in inspect.signature(data.records).parameters else {}
    return data.records(count, seed, **more)


def census(sample: Iterable[SampleRecord]) -> dict[Enum, int]:
    """The number of records of each kind, in the order of the kinds."""
    counted = Counter(record.kind for record in sample)
    return {kind: counted[kind] for first in counted for kind in type(first)}


def produce(
    bootstrap: Kafka,
    sample: Iterable[SampleRecord],
    *,
    present: dict[tuple[str, int], int] | None = None,
    records_per_second: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Writes the records with their timestamps, in order, each once.

    Args:
        bootstrap: the cluster.
        sample: the records to write.
        present: number of records in every partition of the topics, which earlier calls have written: they are
            skipped. None: the topics are empty.
        records_per_second: pace; None: as fast as possible.
        progress: called with the number of records handed over so far.

    Returns:
        The number of records written.

    Raises:
        KafkaTopicError: we may not write to a topic.
        KafkaWriteError: a record was not acknowledged.
    """
    from confluent_kafka import KafkaError, Producer

    from deltaworks.kafka.clients import make
    from deltaworks.kernel.partitioning import partition_of

    failed: list[DeltaworksError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            kind = KafkaTopicError if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED else KafkaWriteError
            failed.append(kind(f"A record of '{message.topic()}' was not acknowledged: {error.str()}."))

    ours = {"partitioner": "murmur2_random", "compression.type": "lz4", "linger.ms": 20, "log_level": 0}
    producer = make(Producer, bootstrap, {"enable.idempotence": True, **ours})
    skip = dict(present or {})
    partitions = Counter(topic for topic, _ in skip)
    written, started = 0, ticks_s()
    for record in sample:
        known = partitions[record.topic]
        partition = partition_of(record.key, known) if record.key is not None and known else record.partition or 0
        if skip.get((record.topic, partition), 0) > 0:
            skip[record.topic, partition] -= 1
            continue
        if records_per_second is not None:
            time.sleep(max(0.0, started + written / records_per_second - ticks_s()))
        _send(producer, record, delivered)
        written += 1
        if written % 500 == 0:
            producer.poll(0)
            progress(written)
        if failed:
            raise failed[0]
    producer.flush()
    progress(written)
    if failed:
        raise failed[0]
    return written


_BY_KEY = -1  # librdkafka's PARTITION_UA: the partitioner decides


def _send(producer: Producer, record: SampleRecord, on_delivery: Callable[[KafkaError | None, Message], None]) -> None:
    while True:
        try:
            return producer.produce(
                record.topic,
                record.value,
                record.key,
                _BY_KEY if record.partition is None else record.partition,
                on_delivery=on_delivery,
                timestamp=record.timestamp_ms,
            )
        except BufferError:
            producer.poll(0.1)


def as_json(fields: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def as_iso(timestamp_ms: int) -> str:
    """ISO 8601 in UTC, with milliseconds and a Z."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
