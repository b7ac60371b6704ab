"""Aggregates per key and time window.

Lateness is decided per record and window, against the largest timestamp that this aggregate has seen. If the
function raises on a record, that time has moved, and the changes already made and forwarded stay.

This function is the hottest of all: one closure, which works on the caches of its store directly. Windows that an
author writes take part in it as `Spans`, of which each record has its own (`own_windows.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from deltaworks.kernel.context import NO_HEADERS, Process
from deltaworks.kernel.processors.aggregates import check_retention, functions
from deltaworks.kernel.processors.caching import forward_windows_at_commit
from deltaworks.kernel.processors.own_windows import NO_START_MS, Closing, Spans, spans_of
from deltaworks.kernel.processors.window_clock import WindowClock
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.entries import ABSENT
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.change import Change
from deltaworks.serdes.windowed import LAST_END_MS, Windowed
from deltaworks.topology.nodes.aggregates import Count, WindowAggregate
from deltaworks.topology.windows import EmitStrategy, TimeWindows, UnlimitedWindows, Windows


def window_aggregate(node: WindowAggregate, wiring: Wiring) -> Process:
    """Null keys are dropped, null values are not; a window is late once `end <= observed time - grace`."""
    name, context, store = node.name, wiring.context, wiring.window_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec, windows = functions(node.aggregation), store.codec, store.windows
    initial, update = does.initial, does.update
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    first_ms, size_ms, advance_ms, grace_ms, stays_open_ms = _spans(node.windows)
    # The most common aggregate of all is worth a branch: it needs no call and cannot fail.
    counts = isinstance(node.aggregation, Count) and freeze is None
    before_last_ms = max(0, size_ms - advance_ms)
    clock = wiring.clock(node, stays_open_ms=stays_open_ms)
    closed_ms = clock.observed_ms - grace_ms
    updates = node.emit is EmitStrategy.ON_WINDOW_UPDATE
    old_values, cached = node.old_values, store.spec.cached and updates
    # Another stream of a cogroup may be so far ahead that a window has left the store before it is late here.
    shared, keeps_ms = node.cogrouped is not None, store.keeps_ms
    check_retention(node.store, store.spec.retention_ms, size_ms + grace_ms)
    if cached and not node.cogrouped:
        wiring.flushes.append(
            forward_windows_at_commit(store, node.windows.end_of, context, forward, old_values=old_values)
        )
    own: Callable[[int], Spans] | None = None
    close: Callable[[Headers], None] | None = None
    if isinstance(node.windows, Windows):
        own = spans_of(node.windows)
        if not updates:
            closing = Closing(node, node.windows, wiring, store, clock)
            own, close = closing.noting(own), closing.close
    elif not updates:
        close = _emitting(node, wiring, store, clock, size_ms, advance_ms, grace_ms)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        nonlocal closed_ms
        if key is None:
            return drop()
        if timestamp_ms > clock.observed_ms:
            clock.observed_ms = timestamp_ms
            closed_ms = timestamp_ms - grace_ms
        try:
            entry_key = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        if own is None:
            start_ms = (timestamp_ms - before_last_ms) // advance_ms * advance_ms
            if start_ms < first_ms:
                start_ms = first_ms
        else:
            try:
                spans = own(timestamp_ms)
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            start_ms = next(iter(spans), NO_START_MS)
        while start_ms <= timestamp_ms:
            if own is None:
                end_ms, next_ms = start_ms + size_ms, start_ms + advance_ms
            else:
                end_ms, next_ms = spans[start_ms]
            if end_ms <= closed_ms:
                context.metrics.late += 1
                start_ms = next_ms
                continue
            window = windows.get(start_ms) or store.window(start_ms)
            entry = window.updates.get(entry_key) or window.committed_entry(entry_key)
            if shared and start_ms <= store.newest_ms - keeps_ms:
                entry = ABSENT
            kept, time_ms = entry[0], entry[1]
            if counts:
                old = kept or 0
                new = kept = old + 1
            else:
                try:
                    if kept is None:
                        old, time_ms = initial(), timestamp_ms
                    else:
                        old = kept if thaw is None else thaw(kept)
                    new = kept = update(key, value, old)
                    if freeze is not None and new is not None:
                        kept = freeze(new)
                except Exception as error:
                    return failed(name, error, key, value, timestamp_ms, headers)
            if start_ms > store.newest_ms:
                store.newest_ms = start_ms
            if timestamp_ms > time_ms:
                time_ms = timestamp_ms
            if cached:
                time_ms = timestamp_ms if new is None else time_ms
                window.updates[entry_key] = (kept, time_ms, context.number, context.index)
            else:
                window.updates[entry_key] = (kept, time_ms)
                if updates:
                    change = Change(new, old if old_values else None)
                    forward(Windowed(key, start_ms, end_ms), change, time_ms, headers)
            start_ms = next_ms
        if close is not None:
            close(headers)
        return None

    def go_on(time_ms: int) -> None:
        nonlocal closed_ms
        if time_ms > clock.observed_ms:
            clock.observed_ms = time_ms
            closed_ms = time_ms - grace_ms
            if close is not None:
                close(NO_HEADERS)

    wiring.idlers.append(go_on)
    return process


def _spans(windows: TimeWindows | UnlimitedWindows | Windows) -> tuple[int, int, int, int, int]:
    """The first start, size, advance, grace, and for how long after its end a window is not final."""
    match windows:
        case TimeWindows():
            return 0, windows.size_ms, windows.advance_ms, windows.grace_ms, windows.grace_ms - 1
        case UnlimitedWindows():
            return windows.start_ms, LAST_END_MS - windows.start_ms, NO_START_MS, 0, NO_START_MS
        case Windows():
            return 0, windows.size_ms, windows.size_ms, windows.grace_ms, windows.grace_ms - 1
        case _:
            assert_never(windows)


def _emitting(
    node: WindowAggregate,
    wiring: Wiring,
    store: WindowStore,
    clock: WindowClock,
    size_ms: int,
    advance_ms: int,
    grace_ms: int,
) -> Callable[[Headers], None]:
    """Forwards the windows with `end <= observed time - grace`, each once, by start, then bytes of the key."""
    forward, context = wiring.forward(node.name), wiring.context
    emitted = wiring.emit_clock(node, final_after_ms=1)
    store.forwarded_before(0 if emitted.emitted_ms == NEVER else emitted.emitted_ms - size_ms + 1)

    def close(headers: Headers) -> None:
        closed_ms = clock.observed_ms - grace_ms
        if not emitted.due(closed_ms, context.wall_clock_ms):
            return
        last_start_ms = closed_ms - size_ms
        if last_start_ms < 0:
            return
        if emitted.emitted_ms != NEVER and (emitted.emitted_ms - size_ms) // advance_ms == last_start_ms // advance_ms:
            return
        emitted.emitted_ms = closed_ms
        for key, start_ms, value, time_ms in store.take_closed(last_start_ms):
            forward(Windowed(key, start_ms, start_ms + size_ms), Change(value), time_ms, headers)

    return close
