from __future__ import annotations

from typing import Any

from deltaworks import Json, Long, Serde, String
from deltaworks.kernel.records import Coordinates
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.suppress import SuppressBuffer
from deltaworks.topology.stages import StoreSpec

FROM = Coordinates("in", 0, 7)


def buffer_on(state: MemoryState, value: Serde[Any] | None = None, *, counts_bytes: bool = False) -> SuppressBuffer:
    spec = StoreSpec(name="b", kind="suppress", key=String(), value=value or Long())
    buffer = SuppressBuffer(spec, state.reader("b"))
    buffer.load(counts_bytes=counts_bytes)
    return buffer


def commit(buffer: SuppressBuffer, state: MemoryState) -> None:
    changes = buffer.take_changes()
    if changes is not None:
        state.apply({"b": changes})


def test_a_later_update_keeps_the_place_and_the_prior_value_of_the_first() -> None:
    buffer = buffer_on(MemoryState())
    buffer.put("k", 10, 1, 0, 10, FROM, ())
    buffer.put("k", 30, 2, 1, 30, FROM, (("h", b"v"),))

    assert buffer.held == {"k": (10, 2, 1, 0, 30, FROM, (("h", b"v"),), 0)}
    assert [(time_ms, key) for time_ms, key, _ in buffer.queue] == [(10, b"k")]


def test_it_comes_back_as_it_was_committed() -> None:
    state = MemoryState()
    for serde in (Long(), Json(list[int])):
        buffer = buffer_on(state, serde)
        one, two = (1, 2) if isinstance(serde, Long) else (b"[1]", b"[2]")
        buffer.put("b", 20, one, None, 20, FROM, (("h", None),))
        buffer.put("a", 20, None, two, 21, FROM, ())
        commit(buffer, state)

        back = buffer_on(state, serde)

        assert back.held == buffer.held
        assert [back.queue[0][1], len(back.queue)] == [b"a", 2]
        while back.queue:
            back.remove_first()
        commit(back, state)
        assert state.contents() == {}


def test_what_came_and_went_between_two_commits_leaves_nothing_behind() -> None:
    buffer = buffer_on(MemoryState())
    buffer.put("k", 10, 1, None, 10, FROM, ())
    buffer.remove_first()

    assert buffer.take_changes() is None


def test_bytes_are_counted_as_in_kafka_streams_and_do_not_depend_on_a_restart() -> None:
    state = MemoryState()
    buffer = buffer_on(state, Json(list[int]), counts_bytes=True)
    fixed = 8 + 8 + 8 + 4 + len("in")  # buffer time, timestamp, offset, partition, topic
    buffer.put("key", 10, b"[1,2]", b"[0,0]", 10, FROM, (("h", b"v"),))
    assert buffer.size_bytes == fixed + 3 + 5 + 5 + 2  # the prior value is the old one, and counts once

    buffer.put("key", 11, b"3", b"[1,2]", 11, FROM, ())
    assert buffer.size_bytes == fixed + 3 + 1 + 5 + 5
    commit(buffer, state)

    back = buffer_on(state, Json(list[int]), counts_bytes=True)
    assert back.size_bytes == buffer.size_bytes
    back.remove_first()
    assert back.size_bytes == 0
