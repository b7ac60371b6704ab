"""Aggregates per key and session.

Sessions at most a gap away from a record become one. Lateness is decided for the session that the record would belong
to, against the largest timestamp that this aggregate has seen.

Source: `KStreamSessionWindowAggregate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deltaworks.kernel.context import NO_HEADERS, Process
from deltaworks.kernel.processors.aggregates import check_retention, functions
from deltaworks.kernel.processors.caching import forward_sessions_at_commit
from deltaworks.kernel.processors.window_clock import WindowClock
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.session import Session, SessionStore
from deltaworks.serdes.change import Change
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.nodes.aggregates import SessionAggregate
from deltaworks.topology.windows import EmitStrategy


def session_aggregate(node: SessionAggregate, wiring: Wiring) -> Process:
    """Null keys are dropped, null values are not.

    A tombstone goes out for each session that is merged away, then the new one, both without the record's headers as
    long as no cache holds them and sessions are not closed first, as in Kafka Streams. A record is late if the session
    it would belong to has `end < observed time - grace - gap`.
    """
    name, context, store = node.name, wiring.context, wiring.session_store(node.store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    does, codec = functions(node.aggregation), store.codec
    initial, update, merge = does.initial, does.update, does.merge
    cache_key, thaw, freeze = codec.cache_key, codec.thaw, codec.freeze
    gap_ms, grace_ms, longest_ms = node.windows.gap_ms, node.windows.grace_ms, node.windows.max_duration_ms
    clock = wiring.clock(node, stays_open_ms=grace_ms + gap_ms)
    updates = node.emit is EmitStrategy.ON_WINDOW_UPDATE
    old_values, cached = node.old_values, store.spec.cached and updates
    check_retention(node.store, store.spec.retention_ms, gap_ms + grace_ms)
    if cached and not node.cogrouped:
        wiring.flushes.append(forward_sessions_at_commit(store, context, forward, old_values=old_values))
    close = None if updates else _emitting(node, wiring, store, clock)
    flushes = wiring.flushes

    def forward_hiding_headers(key: Any, change: Change, end_ms: int, headers: Headers) -> None:
        # A cache behind this operator forwards the headers of the record in process.
        number, index = context.number, context.index
        context.disguise(end_ms, NO_HEADERS)
        try:
            forward(key, change, end_ms, headers)
        finally:
            context.number, context.index = number, index

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None:
            return drop()
        if timestamp_ms > clock.observed_ms:
            clock.observed_ms = timestamp_ms
        try:
            entry_key = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        earliest_ms, latest_ms = timestamp_ms - gap_ms, timestamp_ms + gap_ms
        sessions = store.sessions(entry_key)
        near: list[Session] = []
        for session in sessions:
            if session[0] >= earliest_ms and session[1] <= latest_ms:
                near.append(session)
        if longest_ms is not None:
            near = fitting(near, timestamp_ms, longest_ms)
        start_ms = end_ms = timestamp_ms
        try:
            new = initial()
            for session in near:
                kept = session[2]
                new = merge(key, new, kept if thaw is None else thaw(kept))
                if session[1] < start_ms:
                    start_ms = session[1]
                if session[0] > end_ms:
                    end_ms = session[0]
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        if end_ms < clock.final_before_ms:
            context.metrics.late += 1
            if close is not None:
                close(headers)
            return None
        tell = forward_hiding_headers if headers and flushes else forward
        moves = start_ms != end_ms
        if moves and updates and not cached:
            for session in near:
                old = codec.value_of_cached(session[2]) if old_values else None
                # Removed before the tombstone is forwarded, for joins that look it up.
                store.replace(entry_key, (session,), None)
                tell(Windowed(key, session[1], session[0]), Change(None, old), session[0], NO_HEADERS)
            near = []
        try:
            new = kept = update(key, value, new)
            if freeze is not None and new is not None:
                kept = freeze(new)
        except Exception as error:
            # Kafka Streams has already removed the sessions to be merged, unless the session stays where it is.
            store.replace(entry_key, near if moves else (), None)
            return failed(name, error, key, value, timestamp_ms, headers)
        if cached:
            store.replace(entry_key, near, (end_ms, start_ms, kept, context.number, context.index))
            return None
        store.replace(entry_key, near, (end_ms, start_ms, kept))
        if updates:
            return tell(Windowed(key, start_ms, end_ms), Change(new), end_ms, NO_HEADERS)
        assert close is not None
        return close(headers)

    def go_on(time_ms: int) -> None:
        if time_ms > clock.observed_ms:
            clock.observed_ms = time_ms
            if close is not None:
                close(NO_HEADERS)

    wiring.idlers.append(go_on)
    return process


def fitting(near: Sequence[Session], timestamp_ms: int, longest_ms: int) -> list[Session]:
    """The sessions near a record that can be merged into one that is not too long, in time order.

    The session that the record falls into comes first, then the earlier ones, so that sessions never overlap.
    """
    start_ms = end_ms = timestamp_ms
    taken: set[tuple[int, int]] = set()
    for session in sorted(near, key=lambda session: (not session[1] <= timestamp_ms <= session[0], session[0])):
        first_ms, last_ms = min(start_ms, session[1]), max(end_ms, session[0])
        if last_ms - first_ms <= longest_ms or session[1] <= timestamp_ms <= session[0]:
            start_ms, end_ms = first_ms, last_ms
            taken.add((session[0], session[1]))
    return [session for session in near if (session[0], session[1]) in taken]


def _emitting(
    node: SessionAggregate, wiring: Wiring, store: SessionStore, clock: WindowClock
) -> Callable[[Headers], None]:
    """Forwards the sessions with `end < observed time - grace - gap`, each once, by end, then start, then key bytes."""
    forward, context = wiring.forward(node.name), wiring.context
    emitted = wiring.emit_clock(node, final_after_ms=0)
    closing = store.closing
    assert closing is not None, node.store
    closing.done_before_ms = emitted.emitted_ms

    def close(headers: Headers) -> None:
        closed_ms = clock.final_before_ms
        if not emitted.due(closed_ms, context.wall_clock_ms) or closed_ms < 1:
            return
        emitted.emitted_ms = closed_ms
        for end_ms, start_ms, key, value in closing.take(closed_ms - 1, store.newest_ms):
            forward(Windowed(key, start_ms, end_ms), Change(value), end_ms, headers)

    return close
