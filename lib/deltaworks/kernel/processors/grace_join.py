"""Stream-table joins with a grace period: a record waits for rows that come out of order.

Source: `KStreamKTableJoinProcessor`, `RocksDBTimeOrderedKeyValueBuffer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Coordinates, Headers
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.time_ordered import time_of
from deltaworks.topology.nodes.joins import StreamTableJoin


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """The part of a waiting record besides its time and key."""

    value: bytes
    headers: Headers
    source: Coordinates


encode = msgspec.msgpack.Encoder().encode
"""From `Waiting` to a value in the store."""
decode = msgspec.msgpack.Decoder(Waiting).decode


Join: TypeAlias = Callable[[Any, Any, int, Headers], Exception | None]
"""`(key, value, timestamp_ms, headers)`: joins one record and forwards the result; returns what a function raised."""


def grace_join(node: StreamTableJoin, buffer: str, join: Join, wiring: Wiring) -> Process:
    """Records wait until time has passed theirs by the grace period, then are joined in time order.

    Time is the largest timestamp that has been put into the buffer. A record that is already late is joined at once.
    A left join cannot keep a record without a key, so that record fails, as in Kafka Streams. If the joiner raises, the
    record in process fails, and the one to be joined stays in the buffer with all behind it, as there.
    """
    name, context, store = node.name, wiring.context, wiring.join_buffer(buffer)
    failed, drop, resume = context.failed, context.drop, context.resume
    left, grace_ms = node.kind == "left", node.grace_ms or 0
    write_key, read_key = store.spec.key.serialize, store.spec.key.deserialize
    write_value, read_value = store.spec.value.serialize, store.spec.value.deserialize

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            return drop()
        if key is None:
            error = ValueError("a record without a key cannot wait for a table; drop it before the join")
            return failed(name, error, key, value, timestamp_ms, headers)
        if timestamp_ms < store.newest_ms - grace_ms:
            late = join(key, value, timestamp_ms, headers)
            return None if late is None else failed(name, late, key, value, timestamp_ms, headers)
        try:
            at = timestamp_ms.to_bytes(TIME_BYTES, "big") + write_key(key)
            kept = encode(Waiting(write_value(value), headers, context.coordinates))
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        store.add(at, kept)
        if timestamp_ms > store.newest_ms:
            store.newest_ms = timestamp_ms
        number, index = context.number, context.index
        raised = let_go()
        context.number, context.index = number, index
        return None if raised is None else failed(name, raised, key, value, timestamp_ms, headers)

    def let_go() -> Exception | None:
        due_ms = store.newest_ms - grace_ms
        while (at := store.first()) is not None and (time_ms := time_of(at)) <= due_ms:
            waited = decode(store.values(at)[0])
            resume(waited.source, time_ms, waited.headers)
            error = join(read_key(at[TIME_BYTES:]), read_value(waited.value), time_ms, waited.headers)
            if error is not None:
                return error
            store.remove_first(at)
        return None

    def go_on(time_ms: int) -> None:
        if time_ms > store.newest_ms:
            store.newest_ms = time_ms
            error = let_go()
            if error is not None:
                failed(name, error)

    wiring.idlers.append(go_on)
    return process
