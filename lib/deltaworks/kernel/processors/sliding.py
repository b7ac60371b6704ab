"""Aggregates per key and sliding window.

Every record ends a window and, once another one follows within the time difference, starts one right after itself. So
a record updates the windows it lies in, and makes at most three: the one that it ends, the one after it, and the one
after the record before it. The time of a window's row is that of its last record, which tells what else lies in it.

Source: `KStreamSlidingWindowAggregate#processReverse`, `#processEarly`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from deltaworks.kernel.context import NO_HEADERS, Process
from deltaworks.kernel.processors.aggregates import check_retention, functions
from deltaworks.kernel.processors.caching import forward_sliding_windows_at_commit
from deltaworks.kernel.processors.window_clock import WindowClock
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.entries import ABSENT, Entry
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.change import Change
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.nodes.aggregates import SlidingAggregate
from deltaworks.topology.windows import EmitStrategy


def sliding_aggregate(node: SlidingAggregate, wiring: Wiring) -> Process:
    """Null keys and null values are dropped; a window is late once `end < observed time - grace`."""
    store, windows = wiring.window_store(node.store), node.windows
    check_retention(node.store, store.spec.retention_ms, 2 * windows.difference_ms + windows.grace_ms)
    store.index_keys()
    aggregate = _SlidingAggregate(node, wiring, store)
    if aggregate.cached and not node.cogrouped:
        forward, old_values = wiring.forward(node.name), node.old_values
        flush = forward_sliding_windows_at_commit(
            store, windows.difference_ms, wiring.context, forward, old_values=old_values
        )
        wiring.flushes.append(flush)
    wiring.idlers.append(aggregate.go_on)
    return aggregate.process


class _SlidingAggregate:
    """Adds records to the sliding windows of one store, and forwards what changes."""

    __slots__ = (
        "_cache_key",
        "_clock",
        "_close",
        "_closed_ms",
        "_context",
        "_difference_ms",
        "_drop",
        "_failed",
        "_forward",
        "_forwards_updates",
        "_freeze",
        "_grace_ms",
        "_initial",
        "_name",
        "_old_values",
        "_store",
        "_thaw",
        "_update",
        "_windows",
        "_written",
        "cached",
    )

    def __init__(self, node: SlidingAggregate, wiring: Wiring, store: WindowStore) -> None:
        context, does, codec = wiring.context, functions(node.aggregation), store.codec
        updates = node.emit is EmitStrategy.ON_WINDOW_UPDATE
        self._name, self._context, self._store = node.name, context, store
        self._forward, self._failed, self._drop = wiring.forward(node.name), context.failed, context.drop
        self._initial, self._update = does.initial, does.update
        self._cache_key, self._thaw, self._freeze = codec.cache_key, codec.thaw, codec.freeze
        self._windows, self._written = store.windows, store.written
        self._difference_ms, self._grace_ms = node.windows.difference_ms, node.windows.grace_ms
        self._clock = wiring.clock(node, stays_open_ms=self._grace_ms)
        self._closed_ms = self._clock.observed_ms - self._grace_ms
        """Windows that end before are closed."""
        self._old_values = node.old_values
        self.cached = store.spec.cached and updates
        """Updates are forwarded at the commit, by `forward_sliding_windows_at_commit`."""
        self._forwards_updates = updates and not self.cached
        self._close = None if updates else _emitting(node, wiring, store, self._clock)

    def process(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        """Adds one record, and forwards the windows that it closes if windows are forwarded when they close."""
        if key is None or value is None:
            return self._drop()
        if timestamp_ms > self._clock.observed_ms:
            self._clock.observed_ms = timestamp_ms
            self._closed_ms = timestamp_ms - self._grace_ms
        difference_ms = self._difference_ms
        if timestamp_ms + difference_ms < self._closed_ms:
            self._context.metrics.late += 1
            return None
        if not difference_ms:
            error = ValueError("a sliding window needs a time difference of at least 1 ms")
            return self._failed(self._name, error, key, value, timestamp_ms, headers)
        try:
            entry_key = key if self._cache_key is None else self._cache_key(key)
        except Exception as error:
            return self._failed(self._name, error, key, value, timestamp_ms, headers)
        starts = self._store.starts(entry_key)
        first = 0 if timestamp_ms < difference_ms else bisect_left(starts, timestamp_ms - 2 * difference_ms)
        near = starts[first : bisect_right(starts, timestamp_ms + 1)]
        if timestamp_ms < difference_ms:
            self._add_early(key, entry_key, value, timestamp_ms, headers, near)
        elif self._add(key, entry_key, value, timestamp_ms, headers, near) and self._close is not None:
            self._close(headers)
        return None

    def go_on(self, time_ms: int) -> None:
        """Moves the observed time without a record, and forwards the windows that this closes."""
        if time_ms > self._clock.observed_ms:
            self._clock.observed_ms = time_ms
            self._closed_ms = time_ms - self._grace_ms
            if self._close is not None:
                self._close(NO_HEADERS)

    def _add(
        self, key: Any, entry_key: Any, value: Any, timestamp_ms: int, headers: Headers, near: Sequence[int]
    ) -> bool:
        """Adds a record to its windows, from the last to the first, then makes those that it begins and ends.

        Returns:
            False: a function raised, and the rest is left out.
        """
        difference_ms = self._difference_ms
        after_exists = before_exists = False
        before, after = ABSENT, ABSENT
        previous_ms = NEVER
        for start_ms in reversed(near):
            if start_ms > timestamp_ms:
                after_exists = True
                continue
            end_ms = start_ms + difference_ms
            entry = self._entry_at(entry_key, start_ms)
            if end_ms > timestamp_ms:
                if after is ABSENT:
                    after = entry
            elif end_ms == timestamp_ms:
                before_exists = True
            else:
                before, previous_ms = entry, entry[1]
                break
            if not self._fold(key, entry_key, value, timestamp_ms, headers, start_ms, entry[0], entry[1]):
                return False
            if before_exists:
                if entry[1] >= timestamp_ms:
                    # There was a record at this very time, which has made the other windows.
                    return True
                previous_ms = entry[1]
        if previous_ms != NEVER:
            # The window right after the record before it, which has the new record as its first.
            start_ms = previous_ms + 1
            lacks = start_ms not in near and start_ms + difference_ms >= timestamp_ms
            if lacks and not self._fold(key, entry_key, value, timestamp_ms, headers, start_ms, None, NEVER):
                return False
        if not before_exists:
            # The window that ends with the record.
            start_ms = timestamp_ms - difference_ms
            kept = before[0] if previous_ms != NEVER and start_ms <= previous_ms else None
            if not self._fold(key, entry_key, value, timestamp_ms, headers, start_ms, kept, NEVER):
                return False
        if not after_exists and after[1] > timestamp_ms:
            self._copy(key, entry_key, timestamp_ms, headers, after)
        return True

    def _add_early(
        self, key: Any, entry_key: Any, value: Any, timestamp_ms: int, headers: Headers, near: Sequence[int]
    ) -> None:
        """Its window would start before the epoch: all such records share the one that starts with it."""
        after_exists = False
        first, after = ABSENT, ABSENT
        previous_ms = NEVER
        for start_ms in near:
            if start_ms == 0:
                first = self._entry_at(entry_key, 0)
                if first[1] < timestamp_ms:
                    previous_ms = first[1]
            elif start_ms <= timestamp_ms:
                after = self._entry_at(entry_key, start_ms)
                if not self._fold(key, entry_key, value, timestamp_ms, headers, start_ms, after[0], after[1]):
                    return
            else:
                after_exists = True
        if after is ABSENT:
            after = first
        if not after_exists and after[1] > timestamp_ms:
            self._copy(key, entry_key, timestamp_ms, headers, after)
        lacks = previous_ms != NEVER and previous_ms + 1 not in near
        if lacks and not self._fold(key, entry_key, value, timestamp_ms, headers, previous_ms + 1, None, NEVER):
            return
        self._fold(key, entry_key, value, timestamp_ms, headers, 0, first[0], first[1])

    def _fold(
        self,
        key: Any,
        entry_key: Any,
        value: Any,
        timestamp_ms: int,
        headers: Headers,
        start_ms: int,
        kept: Any,
        time_ms: int,
    ) -> bool:
        """Adds the record to a window; None: one that has no record yet. False if a function raised."""
        try:
            old = self._initial() if kept is None else kept if self._thaw is None else self._thaw(kept)
            if start_ms + self._difference_ms < self._closed_ms:
                self._context.metrics.late += 1
                return True
            new = kept = self._update(key, value, old)
            if self._freeze is not None and new is not None:
                kept = self._freeze(new)
        except Exception as error:
            self._failed(self._name, error, key, value, timestamp_ms, headers)
            return False
        if old is None or timestamp_ms > time_ms:
            time_ms = timestamp_ms
        self._put(entry_key, start_ms, kept, time_ms, timestamp_ms)
        if self._forwards_updates:
            change = Change(new, old if self._old_values else None)
            self._forward(Windowed(key, start_ms, start_ms + self._difference_ms), change, time_ms, headers)
        return True

    def _copy(self, key: Any, entry_key: Any, timestamp_ms: int, headers: Headers, after: Entry) -> None:
        """The window right after the record: what the others that reach beyond it held before it came."""
        kept, time_ms = after[0], after[1]
        start_ms = timestamp_ms + 1
        self._put(entry_key, start_ms, kept, time_ms, timestamp_ms)
        if self._forwards_updates:
            change = Change(kept if self._thaw is None else self._thaw(kept))
            self._forward(Windowed(key, start_ms, start_ms + self._difference_ms), change, time_ms, headers)

    def _entry_at(self, entry_key: Any, start_ms: int) -> Entry:
        """The row of a window, as far as it is known to the task."""
        window = self._windows.get(start_ms) or self._store.window(start_ms)
        return window.updates.get(entry_key) or window.committed_entry(entry_key)

    def _put(self, entry_key: Any, start_ms: int, kept: Any, time_ms: int, timestamp_ms: int) -> None:
        """Keeps the row of a window; with a record cache, also which record changed it, for the order at the commit."""
        store = self._store
        window = self._windows.get(start_ms) or store.window(start_ms)
        if self.cached:
            context, written = self._context, self._written
            time_ms = timestamp_ms if kept is None else time_ms
            window.updates[entry_key] = (kept, time_ms, context.number, context.index)
            written.pop((start_ms, entry_key), None)
            written[start_ms, entry_key] = None
        else:
            window.updates[entry_key] = (kept, time_ms)
        if start_ms > store.newest_ms:
            store.newest_ms = start_ms
        store.note(entry_key, start_ms, there=kept is not None)


def _emitting(
    node: SlidingAggregate, wiring: Wiring, store: WindowStore, clock: WindowClock
) -> Callable[[Headers], None]:
    """Forwards the windows with `end < observed time - grace`, each once, by start, then bytes of the key."""
    forward, context = wiring.forward(node.name), wiring.context
    difference_ms, grace_ms = node.windows.difference_ms, node.windows.grace_ms
    emitted = wiring.emit_clock(node, final_after_ms=0)
    store.forwarded_before(0 if emitted.emitted_ms == NEVER else emitted.emitted_ms - difference_ms)

    def close(headers: Headers) -> None:
        closed_ms = clock.observed_ms - grace_ms
        if not emitted.due(closed_ms, context.wall_clock_ms):
            return
        last_start_ms = closed_ms - difference_ms - 1
        if last_start_ms < 0:
            return
        emitted.emitted_ms = closed_ms
        for key, start_ms, value, time_ms in store.take_closed(last_start_ms):
            forward(Windowed(key, start_ms, start_ms + difference_ms), Change(value), time_ms, headers)

    return close
