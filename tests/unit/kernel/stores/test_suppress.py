from __future__ import annotations

from datetime import timedelta
from typing import Any

from deltaworks import Json, Long, Serde, String, TimeWindowed, Windowed
from deltaworks.kernel.records import Coordinates, RecordBatch
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.suppress import Held, SuppressBuffer
from deltaworks.topology.stages import StoreSpec

TEN = timedelta(milliseconds=10)
FROM = RecordBatch("in", 3, [7], [0], [b"k"], [b"v"])


def buffer_on(state: MemoryState, value: Serde[Any] | None = None, *, counts_bytes: bool = False) -> SuppressBuffer:
    spec = StoreSpec(name="b", kind="suppress", key=String(), value=value or Long())
    buffer = SuppressBuffer(spec, state.reader("b"))
    buffer.load(counts_bytes=counts_bytes)
    return buffer


def commit(buffer: SuppressBuffer, state: MemoryState) -> None:
    changes = buffer.take_changes()
    if changes is not None:
        state.apply({"b": changes})


def held(time_ms: int, new: Any, old: Any = None, prior: Any = None, *, source: RecordBatch = FROM) -> Held:
    return Held(time_ms, new, old, prior, time_ms + 1, source, 0, (("h", b"v"),))


def told(each: Held) -> tuple[Any, ...]:
    return each.time_ms, each.new, each.old, each.prior, each.timestamp_ms, each.coordinates, each.headers


def test_it_comes_back_as_it_was_committed_in_the_order_of_time_and_key() -> None:
    for serde, one, two in ((Long(), 1, 2), (Json(list[int]), b"[1]", b"[2]")):
        state = MemoryState()
        buffer = buffer_on(state, serde)
        buffer.add("b", held(20, one))
        buffer.add("a", held(20, None, two, one))
        buffer.add("c", held(10, two))
        commit(buffer, state)

        back = buffer_on(state, serde)

        assert {key: told(each) for key, each in back.held.items()} == {
            key: told(each) for key, each in buffer.held.items()
        }
        assert told(back.held["a"]) == (20, None, two, one, 21, Coordinates("in", 3, 7), (("h", b"v"),))
        order = []
        while back.queue:
            order.append(back.queue[0][2])
            back.remove_first()
        assert order == ["c", "a", "b"]
        commit(back, state)
        assert state.contents() == {}


def test_keys_of_windows_are_kept_as_objects_and_others_as_bytes() -> None:
    window = Windowed("k", 0, 10)
    for key, stored in ((TimeWindowed(String(), TEN), window), (TimeWindowed(Json(float), TEN), b"0.5" + bytes(8))):
        state = MemoryState()
        spec = StoreSpec(name="b", kind="suppress", key=key, value=Long())
        buffer = SuppressBuffer(spec, state.reader("b"))
        buffer.add(stored, held(10, 1))
        commit(buffer, state)

        back = SuppressBuffer(spec, state.reader("b"))
        back.load(counts_bytes=False)

        assert list(back.held) == [stored]


def test_what_came_and_went_between_two_commits_leaves_nothing_behind() -> None:
    buffer = buffer_on(MemoryState())
    buffer.add("k", held(10, 1))
    buffer.remove_first()

    assert buffer.take_changes() is None


def test_what_went_and_came_again_is_written_once_more() -> None:
    state = MemoryState()
    buffer = buffer_on(state)
    buffer.add("k", held(10, 1))
    commit(buffer, state)
    buffer.remove_first()
    buffer.add("k", held(30, 2))
    commit(buffer, state)

    assert buffer_on(state).held["k"].time_ms == 30


def test_bytes_are_counted_as_in_kafka_streams_and_do_not_depend_on_a_restart() -> None:
    state = MemoryState()
    buffer = buffer_on(state, Json(list[int]), counts_bytes=True)
    fixed = 8 + 8 + 8 + 4 + len("in") + len("h") + len("v")  # time, timestamp, offset, partition, topic, header
    first = held(10, b"[1,2]", b"[0]", b"[0]")
    buffer.add("key", first)
    buffer.count("key", first)
    assert buffer.size_bytes == fixed + 3 + 5 + 3  # the prior value is the old one, and counts once

    first.new, first.old = b"[3]", b"[1,2]"
    buffer.count("key", first)
    assert buffer.size_bytes == fixed + 3 + 3 + 5 + 3
    commit(buffer, state)

    back = buffer_on(state, Json(list[int]), counts_bytes=True)
    assert back.size_bytes == buffer.size_bytes
    back.remove_first()
    assert back.size_bytes == 0
