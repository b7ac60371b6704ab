"""The near side of an exchange: the choice of a record's task in the later stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.partitioning import chosen_partitions, partition_of
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.repartition import ExchangeSink
from deltaworks.topology.routing import StreamPartitioner

_REMEMBERED_KEYS = 100_000


def exchange_sink(node: ExchangeSink, wiring: Wiring) -> Process:
    """Sends records by key; a record without one goes to the task of the same number, so a batch always goes alike."""
    name, exchange, context, collector = node.name, node.exchange, wiring.context, wiring.context.collector
    partitions = wiring.exchange_partitions[exchange]
    write_key, write_value = node.key.serialize, node.value.serialize
    known: dict[bytes, int] = {}
    taken = wiring.raw_records.taken_by(name, context)
    choose = None if node.partitioner is None else _choosing(node.partitioner, exchange, partitions)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            key_bytes = None if key is None else write_key(key)
            value_bytes = None if value is None else write_value(value)
        except Exception as error:
            return context.unwritable(name, error, exchange, process, key, value, timestamp_ms, headers)
        if taken is not None:
            taken(key, value, timestamp_ms, headers)
        if choose is not None:
            try:
                targets = choose(key, value)
            except Exception as error:
                return context.failed(name, error, key, value, timestamp_ms, headers)
            if targets is not None:
                for partition in targets:
                    collector.exchange(exchange, partition, key_bytes, value_bytes, timestamp_ms, headers)
                return None if targets else context.drop()
        if key_bytes is None:
            partition = context.partition % partitions
        else:
            found = known.get(key_bytes)
            if found is None:
                if len(known) >= _REMEMBERED_KEYS:
                    known.clear()
                found = known[key_bytes] = partition_of(key_bytes, partitions)
            partition = found
        return collector.exchange(exchange, partition, key_bytes, value_bytes, timestamp_ms, headers)

    return process


def _choosing(
    partitioner: StreamPartitioner, exchange: str, partitions: int
) -> Callable[[Any, Any], tuple[int, ...] | None]:
    return lambda key, value: chosen_partitions(partitioner, exchange, key, value, partitions)
