"""Functions that choose the topic or the partition of each record, where the topology does not fix them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import msgspec


class RecordContext(msgspec.Struct, frozen=True):
    """What a `TopicNameExtractor` gets besides key and value.

    Source: `RecordContext`; differs: no.
    """

    topic: str | None
    """Where the record in process was read from; None for records of a punctuator."""
    partition: int
    offset: int
    timestamp_ms: int
    """Headers of the record that is written."""
    headers: tuple[tuple[str, bytes | None], ...]


class TopicNameExtractor(Protocol):
    """A function `(key, value, context) -> topic`; the topic must exist.

    Source: `TopicNameExtractor`; differs: no.
    """

    def __call__(self, key: Any, value: Any, context: RecordContext, /) -> str: ...


class StreamPartitioner(Protocol):
    """A function `(topic, key, value, partitions) -> partition`, from 0 to `partitions - 1`.

    None leaves the choice to Kafka's default. With a set of partitions, each gets a copy; an empty set drops it.

    It must decide alike in every process and after every restart, or related records are separated: use `zlib.crc32` or
    the like, never Python's `hash`, which differs from process to process. If it raises, or names a partition that the
    topic does not have, the record has failed.

    ```python
    def by_customer(topic: str, store: str, invoice: Invoice, partitions: int) -> int:
        return zlib.crc32(invoice.customer.encode()) % partitions
    ```

    Source: `StreamPartitioner`; differs: no.
    """

    def __call__(self, topic: str, key: Any, value: Any, partitions: int, /) -> int | Collection[int] | None: ...
