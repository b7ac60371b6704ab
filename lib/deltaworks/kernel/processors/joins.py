"""Joins of a stream with a table or global table: only the stream triggers; rows come from the table's store."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.grace_join import Join, grace_join
from deltaworks.kernel.processors.views import LookupAsOf, is_versioned, lookup, lookup_as_of, stored
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.joins import GlobalTableJoin, StreamTableJoin


def stream_table_join(node: StreamTableJoin, wiring: Wiring) -> Process:
    """Null values are dropped; a null key is dropped by an inner join and joins nothing in a left one (KIP-962)."""
    if node.buffer is not None:
        return grace_join(node, node.buffer, _joining(node, wiring, lookup_as_of(node.table, wiring)), wiring)
    if is_versioned(node.table, wiring):
        return _dropping(node, _joining(node, wiring, lookup_as_of(node.table, wiring)), wiring)
    name, joiner, left = node.name, node.joiner, node.kind == "left"
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    row_of = lookup(node.table, wiring)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            return drop()
        try:
            row = None if key is None else row_of(key)[0]
            if row is None and not left:
                return None
            joined = joiner(key, value, row)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, joined, timestamp_ms, headers)

    return process


def global_table_join(node: GlobalTableJoin, wiring: Wiring) -> Process:
    """Joins with a row of a global table, whose store belongs to another stage and can be read by every task.

    Null values are dropped; a null lookup key is dropped by an inner join and joins nothing in a left one.

    The selector sees null values too, as in Kafka Streams.
    """
    name, selector, joiner, left = node.name, node.selector, node.joiner, node.kind == "left"
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    row_of = stored(wiring.global_table(node.table))

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            wanted = selector(key, value)
            if value is None or (wanted is None and not left):
                return drop()
            row = None if wanted is None else row_of(wanted)[0]
            if row is None and not left:
                return None
            joined = joiner(key, value, row)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, joined, timestamp_ms, headers)

    return process


def _dropping(node: StreamTableJoin, join: Join, wiring: Wiring) -> Process:
    name, left, failed, drop = node.name, node.kind == "left", wiring.context.failed, wiring.context.drop

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            return drop()
        error = join(key, value, timestamp_ms, headers)
        return None if error is None else failed(name, error, key, value, timestamp_ms, headers)

    return process


def _joining(node: StreamTableJoin, wiring: Wiring, row_as_of: LookupAsOf) -> Join:
    """Joins a record with the row as of its timestamp."""
    forward, joiner, left = wiring.forward(node.name), node.joiner, node.kind == "left"

    def join(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> Exception | None:
        try:
            row = None if key is None else row_as_of(key, timestamp_ms)[0]
            if row is None and not left:
                return None
            joined = joiner(key, value, row)
        except Exception as error:
            return error
        forward(key, joined, timestamp_ms, headers)
        return None

    return join
