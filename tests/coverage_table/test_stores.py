"""Stores of processors: kinds that no recorded case has, times, stores of one's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    OrderedBytes,
    Processor,
    Record,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    ValueAndTimestamp,
    Windowed,
)
from deltaworks.testing import TopologyTestDriver

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def in_store(builder: StoreBuilder[Any], *actions: Callable[[Any], Any]) -> list[Any]:
    """What actions on a store give, one per record."""
    results: list[Any] = []

    class Acts(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            result = actions[record.value](self.context.state_store(builder.name))
            results.append([*result] if hasattr(result, "__next__") else result)

    topology = StreamsBuilder().add_state_store(builder)
    topology.stream("numbers", key=str, value=int).process(Acts, builder.name, key=str, value=int).foreach(print)
    driver = TopologyTestDriver(topology.build())
    for number in range(len(actions)):
        driver.create_input_topic("numbers").pipe_input("k", number, timestamp_ms=number)
    return results


def key_value() -> StoreBuilder[Any]:
    return Stores.key_value("s", key=str, value=int)


def timestamped() -> StoreBuilder[Any]:
    return Stores.timestamped_key_value("s", key=str, value=int)


def windows() -> StoreBuilder[Any]:
    return Stores.window("s", key=str, value=int, window_size=MINUTE, retention=DAY)


def timestamped_windows() -> StoreBuilder[Any]:
    return Stores.timestamped_window("s", key=str, value=int, window_size=MINUTE, retention=DAY)


def sessions() -> StoreBuilder[Any]:
    return Stores.session("s", key=str, value=int, retention=DAY)


PAIRS = [("a", 1), ("ab", 2), ("b", 3)]
ROWS = [("a", 1, 5), ("ab", 2, 6), ("b", 3, 7)]
TIMED = [("a", ValueAndTimestamp(1, 5)), ("ab", ValueAndTimestamp(2, 6)), ("b", ValueAndTimestamp(3, 7))]
QUERIES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "all": (lambda s: s.all(), PAIRS),
    "reverse_all": (lambda s: s.reverse_all(), [*reversed(PAIRS)]),
    "range": (lambda s: s.range("a", "ab"), PAIRS[:2]),
    "reverse_range": (lambda s: s.reverse_range("a", "ab"), [*reversed(PAIRS[:2])]),
    "prefix_scan": (lambda s: s.prefix_scan("a"), PAIRS[:2]),
    "approximate_num_entries": (lambda s: s.approximate_num_entries(), 3),
    "get": (lambda s: s.get("a"), 1),
}
QUERIES_WITH_TIMES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "all": (lambda s: s.all(), TIMED),
    "reverse_all": (lambda s: s.reverse_all(), [*reversed(TIMED)]),
    "range": (lambda s: s.range("a", "ab"), TIMED[:2]),
    "reverse_range": (lambda s: s.reverse_range("a", "ab"), [*reversed(TIMED[:2])]),
    "prefix_scan": (lambda s: s.prefix_scan("a"), TIMED[:2]),
    "approximate_num_entries": (lambda s: s.approximate_num_entries(), 3),
    "get": (lambda s: (s.get("a").value, s.get("a").timestamp_ms, s.get("c")), (1, 5, None)),
    "delete": (lambda s: (s.delete("a"), s.get("a")), ((1, 5), None)),
    "put": (lambda s: (s.put("a", 9, 8), s.get("a")), (None, (9, 8))),
    "put_if_absent": (lambda s: (s.put_if_absent("c", 9, 8), s.get("c")), (None, (9, 8))),
    "put_all": (lambda s: s.get("b"), (3, 7)),
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_store_answers(query: str) -> None:
    ask, answer = QUERIES[query]

    assert in_store(key_value(), lambda s: s.put_all(PAIRS), ask)[1] == answer


@pytest.mark.parametrize("query", QUERIES_WITH_TIMES)
def test_a_store_with_times_answers(query: str) -> None:
    ask, answer = QUERIES_WITH_TIMES[query]

    assert in_store(timestamped(), lambda s: s.put_all(ROWS), ask)[1] == answer


def test_a_store_in_memory_is_a_store() -> None:
    builder = Stores.key_value("s", key=str, value=int, in_memory=True)

    assert in_store(builder, lambda s: s.put("a", 1), lambda s: s.get("a")) == [None, 1]


def test_a_window_store_in_memory_is_a_store() -> None:
    builder = Stores.window("s", key=str, value=int, window_size=MINUTE, retention=DAY, in_memory=True)

    assert in_store(builder, lambda s: s.put("a", 1, 0), lambda s: s.fetch("a", 0)) == [None, 1]


def test_a_session_store_in_memory_is_a_store() -> None:
    builder = Stores.session("s", key=str, value=int, retention=DAY, in_memory=True)
    session = Windowed("a", 0, 5)

    assert in_store(builder, lambda s: s.put(session, 1), lambda s: s.fetch_session("a", 0, 5)) == [None, 1]


A0, A1, B0 = (Windowed("a", 0, 60_000), 0), (Windowed("a", 1, 60_001), 1), (Windowed("b", 0, 60_000), 2)
WINDOWS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "fetch": (lambda s: s.fetch("a", 1), 1),
    "fetch_range": (lambda s: s.fetch_range("a", 0, 1), [(0, 0), (1, 1)]),
    "backward_fetch_range": (lambda s: s.backward_fetch_range("a", 0, 1), [(1, 1), (0, 0)]),
    "fetch_keys": (lambda s: s.fetch_keys("a", "b", 0, 0), [A0, B0]),
    "backward_fetch_keys": (lambda s: s.backward_fetch_keys("a", "b", 0, 0), [B0, A0]),
    "fetch_all": (lambda s: s.fetch_all(0, 0), [A0, B0]),
    "backward_fetch_all": (lambda s: s.backward_fetch_all(0, 0), [B0, A0]),
    "all": (lambda s: s.all(), [A0, A1, B0]),
    "backward_all": (lambda s: s.backward_all(), [B0, A1, A0]),
}
"""What window stores answer: of a and b, in the windows that start at 0 and 1."""


def timed(answer: Any) -> Any:
    """What a store with times answers, whose entries all have the time 5."""
    if not isinstance(answer, list):
        return ValueAndTimestamp(answer, 5)
    return [(key, ValueAndTimestamp(value, 5)) for key, value in answer]


def put_windows(store: Any, *timestamp_ms: int) -> None:
    for number, (key, start_ms) in enumerate([("a", 0), ("a", 1), ("b", 0)]):
        store.put(key, number, start_ms, *timestamp_ms)


@pytest.mark.parametrize("query", WINDOWS)
def test_a_window_store_answers(query: str) -> None:
    ask, answer = WINDOWS[query]

    assert in_store(windows(), put_windows, ask)[1] == answer


@pytest.mark.parametrize("query", WINDOWS)
def test_a_window_store_with_times_answers(query: str) -> None:
    ask, answer = WINDOWS[query]

    assert in_store(timestamped_windows(), lambda s: put_windows(s, 5), ask)[1] == timed(answer)


def filled_sessions(action: Callable[[Any], Any]) -> Any:
    def fill(store: Any) -> None:
        for number, key in enumerate("ab"):
            store.put(Windowed(key, 0, 5), number)

    return in_store(sessions(), fill, action)[1]


def test_sessions_of_several_keys_can_be_read() -> None:
    assert filled_sessions(lambda s: s.fetch_keys("a", "b")) == [(Windowed("a", 0, 5), 0), (Windowed("b", 0, 5), 1)]


def test_sessions_of_several_keys_can_be_read_backward() -> None:
    assert filled_sessions(lambda s: s.backward_fetch_keys("a", "b")) == [
        (Windowed("b", 0, 5), 1),
        (Windowed("a", 0, 5), 0),
    ]


def test_a_session_can_be_read() -> None:
    assert filled_sessions(lambda s: s.fetch_session("b", 0, 5)) == 1


def test_a_store_of_ones_own_keeps_what_is_in_its_bytes() -> None:
    class Counter:
        def __init__(self, entries: OrderedBytes) -> None:
            self._entries = entries

        def count(self) -> int:
            number = int.from_bytes(self._entries.get(b"n") or b"") + 1
            self._entries.put(b"n", number.to_bytes(8))
            return number

    builder = Stores.custom("s", Counter)

    assert in_store(builder, lambda s: s.count(), lambda s: s.count()) == [1, 2]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("setting", ["caching", "logging"])
def test_a_setting_that_changes_nothing_is_taken(setting: str, enabled: bool) -> None:
    settings: Any = {setting: enabled}
    assert Stores.key_value("s", key=str, value=int, **settings) == key_value()


def test_a_store_has_the_name_it_is_given() -> None:
    assert key_value().name == "s"
