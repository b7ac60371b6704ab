"""Which topic and which partition a record is written to, where the topology does not say it once for all."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import msgspec


class RecordContext(msgspec.Struct, frozen=True):
    """What a `TopicNameExtractor` knows besides key and value.

    Source: `RecordContext`; differs: no.
    """

    topic: str | None
    """Where the record in process was read from; None if it does not come from one (a punctuator's)."""
    partition: int
    offset: int
    timestamp_ms: int
    """Of the record that is written."""
    headers: tuple[tuple[str, bytes | None], ...]


class TopicNameExtractor(Protocol):
    """A function `(key, value, context) -> topic`; the topic must exist.

    Source: `TopicNameExtractor`; differs: no.
    """

    def __call__(self, key: Any, value: Any, context: RecordContext, /) -> str: ...


class StreamPartitioner(Protocol):
    """A function `(topic, key, value, partitions) -> partition`, from 0 to `partitions - 1`.

    None: as Kafka's own producer would choose. A set of partitions: a copy goes to each; an empty one drops the record.

    It decides alike in every process and after every restart, or what belongs together comes apart: by `zlib.crc32` or
    such, never by Python's `hash`, which differs from process to process. A record on which it raises, or for which it
    names no partition of the topic, has failed.

    ```python
    def by_customer(topic: str, store: str, invoice: Invoice, partitions: int) -> int:
        return zlib.crc32(invoice.customer.encode()) % partitions
    ```

    Source: `StreamPartitioner`; differs: no.
    """

    def __call__(self, topic: str, key: Any, value: Any, partitions: int, /) -> int | Collection[int] | None: ...
