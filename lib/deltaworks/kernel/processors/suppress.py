"""Holds back updates of a table until a window has closed or a time has passed.

Time is the largest timestamp that this operator has seen; records that a filter drops before it do not move it.
Source: `KTableSuppressProcessorSupplier`.
"""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.suppress import Held
from deltaworks.serdes.change import Change
from deltaworks.topology.nodes.suppress import Suppress


def suppress(node: Suppress, wiring: Wiring) -> Process:
    """A later update of a key takes the place of the one held, in the queue too.

    A forwarded update has the timestamp, headers and coordinates of the last one, and the old value that came with it.
    The bytes of the record as it was read are not kept, so a dead letter of a failure below does not have them.
    """
    name, context, store = node.name, wiring.context, wiring.suppress_buffer(node.store)
    forward, failed, resume = wiring.forward(name), context.failed, context.resume
    by_window, wait_ms, emits_early = node.until_window_closes, node.wait_ms, node.buffer.emits_early
    max_records, max_bytes = node.buffer.max_records, node.buffer.max_bytes
    bounded = max_records is not None or max_bytes is not None
    codec, held, queue, dirty = store.codec, store.held, store.queue, store.dirty
    add, freeze, value_of_cached = store.add, codec.freeze, codec.value_of_cached
    entry_key_of, read_key = None if store.plain_keys else store.spec.key.serialize, store.spec.key.deserialize
    counts_bytes = max_bytes is not None
    clock = wiring.clock(node, stays_open_ms=node.stays_open_ms)
    store.load(counts_bytes=counts_bytes)

    def process(key: Any, change: Change, timestamp_ms: int, headers: Headers) -> None:
        if timestamp_ms > clock.observed_ms:
            clock.observed_ms = timestamp_ms
        batch, index = context.batches[context.number], context.index
        try:
            entry_key = key if entry_key_of is None else entry_key_of(key)
            new, old = change.new, change.old
            if freeze is not None:
                new = None if new is None else freeze(new)
                old = None if old is None else freeze(old)
            update = held.get(entry_key)
            if update is None:
                time_ms = key.end_ms if by_window else timestamp_ms
                update = Held(time_ms, new, old, old, timestamp_ms, batch, index, headers)
                add(entry_key, update)
            else:
                update.new, update.old, update.timestamp_ms = new, old, timestamp_ms
                update.batch, update.index, update.headers = batch, index, headers
                if update.clean:
                    update.clean = False
                    dirty[entry_key] = True
            if counts_bytes:
                store.count(entry_key, update)
        except Exception as error:
            return failed(name, error, key, change, timestamp_ms, headers)
        due_ms = clock.observed_ms - wait_ms
        if queue[0][0] <= due_ms or (bounded and over_capacity()):
            let_go(due_ms)
            if bounded and over_capacity():
                return failed(name, full(), key, change, timestamp_ms, headers)
        return None

    def let_go(due_ms: int) -> None:
        number, index = context.number, context.index
        while queue and (queue[0][0] <= due_ms or (emits_early and over_capacity())):
            entry_key = queue[0][2]
            update = held[entry_key]
            if update.new is not None or not by_window:
                resume(update.coordinates, update.timestamp_ms, update.headers)
                change = Change(value_of_cached(update.new), value_of_cached(update.old))
                key = entry_key if entry_key_of is None else read_key(entry_key)
                forward(key, change, update.timestamp_ms, update.headers)
            # Only now: a lookup of the key while it was forwarded has seen its previous value.
            store.remove_first()
        context.number, context.index = number, index

    def go_on(time_ms: int) -> None:
        if time_ms > clock.observed_ms:
            clock.observed_ms = time_ms
            let_go(time_ms - wait_ms)

    def over_capacity() -> bool:
        return (max_records is not None and len(held) > max_records) or (
            max_bytes is not None and store.size_bytes > max_bytes
        )

    def full() -> BufferError:
        bounds = [f"{len(held)} of {max_records} records"] if max_records is not None else []
        bounds += [f"{store.size_bytes} of {max_bytes} bytes"] if max_bytes is not None else []
        return BufferError(f"the buffer of suppress is full: it holds {' and '.join(bounds)}")

    wiring.idlers.append(go_on)
    return process
