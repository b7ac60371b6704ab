"""Joins with a global table, whose store belongs to another stage and can be read by every task."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.views import stored
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.joins import GlobalTableJoin


def global_table_join(node: GlobalTableJoin, wiring: Wiring) -> Process:
    """Null values are dropped; a null lookup key is dropped by an inner join and joins nothing in a left one.

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
