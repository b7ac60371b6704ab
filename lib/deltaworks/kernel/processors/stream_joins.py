"""Stream-stream joins.

Each side sends a record to the join first and keeps it afterwards, so a record meets the records that the other side
has kept so far. There is no check for lateness: an old record joins as long as the other side still has its partners.

Records of a left or outer join that find no partner wait in one list for both sides. When it is walked, and where a
walk ends, follows Kafka Streams to the letter, oddities included (`KStreamKStreamJoin#emitNonJoinedOuterRecords`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltaworks.kernel.context import NO_HEADERS, Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Coordinates, Headers
from deltaworks.kernel.stores.time_ordered import time_of
from deltaworks.kernel.stores.waiting_list import LEFT, NO_TIME, RIGHT, WaitingList, is_left, key_of, waiting_key
from deltaworks.serdes.left_or_right import LeftOrRight
from deltaworks.topology.nodes.joins import JoinWindow, StreamSelfJoin, StreamStreamJoin

_NOWHERE = Coordinates("", -1, -1)
"""The coordinates of output while the task is idle."""


def join_window(node: JoinWindow, wiring: Wiring) -> Process:
    """Passes every record on, then keeps those that have a key and a value."""
    name, store = node.name, wiring.join_window_store(node.store)
    forward, failed = wiring.forward(name), wiring.context.failed
    cache_key, freeze, put = store.codec.cache_key, store.codec.freeze, store.put

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        forward(key, value, timestamp_ms, headers)
        if key is None or value is None:
            return None
        try:
            entry_key = key if cache_key is None else cache_key(key)
            kept = value if freeze is None else freeze(value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return put(entry_key, kept, timestamp_ms)

    return process


def stream_stream_join(node: StreamStreamJoin, wiring: Wiring) -> Process:
    """One side of a join; the result has the larger of both timestamps and the headers of the later arrival."""
    return _inner_side(node, wiring) if node.waiting is None else _outer_side(node, node.waiting, wiring)


def _inner_side(node: StreamStreamJoin, wiring: Wiring) -> Process:
    name, other = node.name, wiring.join_window_store(node.other_store)
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    cache_key, thaw, between = other.codec.cache_key, other.codec.thaw, other.between
    before_ms, after_ms = _bounds(node)
    joiner, left = node.joiner, node.side == "left"

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            return drop()
        try:
            entry_key = key if cache_key is None else cache_key(key)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        from_ms, to_ms = timestamp_ms - before_ms, timestamp_ms + after_ms
        for other_ms, kept in between(entry_key, from_ms if from_ms > 0 else 0, to_ms if to_ms > 0 else 0):
            try:
                partner = kept if thaw is None else thaw(kept)
                joined = joiner(key, value, partner) if left else joiner(key, partner, value)
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            forward(key, joined, timestamp_ms if timestamp_ms > other_ms else other_ms, headers)
        return None

    return process


def _outer_side(node: StreamStreamJoin, waiting_store: str, wiring: Wiring) -> Process:
    name, context = node.name, wiring.context
    other, waiting = wiring.join_window_store(node.other_store), wiring.waiting_list(waiting_store)
    forward, failed, drop = wiring.forward(name), context.failed, context.drop
    codec, between = other.codec, other.between
    cache_key, thaw = codec.cache_key, codec.thaw
    before_ms, after_ms = _bounds(node)
    joiner, left, alone = node.joiner, node.side == "left", node.alone
    this_side, other_side = (LEFT, RIGHT) if left else (RIGHT, LEFT)
    write = _sides(waiting).left.serialize if left else _sides(waiting).right.serialize
    walk = _walk(node, waiting, wiring)
    holds_ms = after_ms + node.windows.grace_ms

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if timestamp_ms > waiting.newest_ms:
            waiting.newest_ms = timestamp_ms
        if value is None or (key is None and not alone):
            return drop()
        if key is not None:
            if timestamp_ms == waiting.newest_ms and _may_be_due(waiting, holds_ms) and not walk(headers):
                return None
            try:
                entry_key = key if cache_key is None else cache_key(key)
                key_bytes = codec.cached_key_bytes(entry_key)
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            from_ms, to_ms = timestamp_ms - before_ms, timestamp_ms + after_ms
            if to_ms < 0:
                to_ms = 0
            partners = between(entry_key, from_ms if from_ms > 0 else 0, to_ms)
            for other_ms, kept in partners:
                waiting.remove(waiting_key(other_ms, other_side, key_bytes))
                try:
                    partner = kept if thaw is None else thaw(kept)
                    joined = joiner(key, value, partner) if left else joiner(key, partner, value)
                except Exception as error:
                    return failed(name, error, key, value, timestamp_ms, headers)
                forward(key, joined, timestamp_ms if timestamp_ms > other_ms else other_ms, headers)
            if partners or not alone:
                return None
            if to_ms >= waiting.newest_ms:
                if timestamp_ms < waiting.min_ms:
                    waiting.min_ms = timestamp_ms
                try:
                    kept = write(value)
                except Exception as error:
                    return failed(name, error, key, value, timestamp_ms, headers)
                return waiting.add(waiting_key(timestamp_ms, this_side, key_bytes), kept)
        try:
            joined = joiner(key, value, None) if left else joiner(key, None, value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(key, joined, timestamp_ms, headers)

    def go_on(time_ms: int) -> None:
        if time_ms < waiting.newest_ms:
            return
        waiting.newest_ms = time_ms
        if _may_be_due(waiting, holds_ms):
            context.resume(_NOWHERE, time_ms, NO_HEADERS)
            walk(NO_HEADERS)

    wiring.idlers.append(go_on)
    return process


def _may_be_due(waiting: WaitingList, holds_ms: int) -> bool:
    """Whether to walk. With none known to wait, Kafka Streams' sum overflows to yes, and the walk sets the next one."""
    if waiting.min_ms == NO_TIME:
        return holds_ms > 0
    return waiting.min_ms + holds_ms < waiting.newest_ms


def _walk(node: StreamStreamJoin, waiting: WaitingList, wiring: Wiring) -> Callable[[Headers], bool]:
    """Forwards records that no partner can join any more, with their own timestamp and the current record's headers.

    Returns False if the joiner raised, so the record in process is set aside.
    """
    name, context, joiner = node.name, wiring.context, node.joiner
    forward, failed = wiring.forward(name), context.failed
    grace_ms, interval_ms = node.windows.grace_ms, node.emit_interval_ms
    left_holds_ms, right_holds_ms = node.windows.after_ms + grace_ms, node.windows.before_ms + grace_ms
    read_left, read_right = _sides(waiting).left.deserialize, _sides(waiting).right.deserialize
    read_key = waiting.spec.key.deserialize

    def walk(headers: Headers) -> bool:
        if context.wall_clock_ms < waiting.next_walk_ms:
            return True
        waiting.next_walk_ms = context.wall_clock_ms + interval_ms
        waiting.min_ms = NO_TIME
        left_open = right_open = False
        emitted: bytes | None = None
        for at, values in waiting.walk():
            waiting.min_ms = time_ms = time_of(at)
            if left_open and right_open:
                break
            left = is_left(at)
            if time_ms + (left_holds_ms if left else right_holds_ms) >= waiting.newest_ms:
                left_open, right_open = left_open or left, right_open or not left
                if left_open and right_open and len(values) > 1:
                    break
                continue
            for value in values:
                try:
                    key = read_key(key_of(at))
                    joined = joiner(key, read_left(value), None) if left else joiner(key, None, read_right(value))
                except Exception as error:
                    failed(name, error)
                    return False
                forward(key, joined, time_ms, headers)
                # Only now: if the next joiner raises, its predecessor stays, and is forwarded again.
                if emitted is not None:
                    waiting.remove(emitted)
                    emitted = None
            emitted = at
        if emitted is not None:
            waiting.remove(emitted)
        return True

    return walk


def stream_self_join(node: StreamSelfJoin, wiring: Wiring) -> Process:
    """A record meets the earlier ones as the left side, then as the right side, and itself at its place in time."""
    name, store = node.name, wiring.join_window_store(node.store)
    forward, failed, drop = wiring.forward(name), wiring.context.failed, wiring.context.drop
    cache_key, thaw, between, joiner = store.codec.cache_key, store.codec.thaw, store.between, node.joiner
    before_ms, after_ms, retention_ms = node.windows.before_ms, node.windows.after_ms, node.windows.retention_ms

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        if key is None or value is None:
            return drop()
        try:
            entry_key = key if cache_key is None else cache_key(key)
            with_itself = joiner(key, value, value)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        pending = timestamp_ms > max(store.newest_ms, timestamp_ms) - retention_ms + 1
        for other_ms, kept in between(entry_key, max(0, timestamp_ms - before_ms), max(0, timestamp_ms + after_ms)):
            try:
                joined = joiner(key, value, kept if thaw is None else thaw(kept))
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            forward(key, joined, max(timestamp_ms, other_ms), headers)
        for other_ms, kept in between(entry_key, max(0, timestamp_ms - after_ms), max(0, timestamp_ms + before_ms)):
            if pending and timestamp_ms < other_ms:
                pending = False
                forward(key, with_itself, timestamp_ms, headers)
            try:
                joined = joiner(key, kept if thaw is None else thaw(kept), value)
            except Exception as error:
                return failed(name, error, key, value, timestamp_ms, headers)
            forward(key, joined, max(timestamp_ms, other_ms), headers)
        if pending:
            forward(key, with_itself, timestamp_ms, headers)
        return None

    return process


def _bounds(node: StreamStreamJoin) -> tuple[int, int]:
    """How much earlier and later a partner of this side's record may be."""
    before_ms, after_ms = node.windows.before_ms, node.windows.after_ms
    return (before_ms, after_ms) if node.side == "left" else (after_ms, before_ms)


def _sides(waiting: WaitingList) -> LeftOrRight:
    assert isinstance(waiting.spec.value, LeftOrRight), waiting.spec.name
    return waiting.spec.value
