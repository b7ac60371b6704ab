"""Aggregates become nodes with stores that know their kind, types and retention."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import (
    EmitStrategy,
    KGroupedStream,
    Long,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    String,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
)
from deltaworks.topology.nodes import DeltaSink, SessionAggregate, StreamAggregate, WindowAggregate
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.stages import StoreSpec

TEN, THREE = timedelta(milliseconds=10), timedelta(milliseconds=3)


@pytest.fixture
def builder() -> StreamsBuilder:
    return StreamsBuilder()


@pytest.fixture
def words(builder: StreamsBuilder) -> KGroupedStream[str, str]:
    return builder.stream("words", key=str, value=str).group_by_key()


def only_store(builder: StreamsBuilder) -> StoreSpec:
    (store,) = builder.build().stores
    return store


def test_an_aggregate_per_key_has_a_key_value_store(builder: StreamsBuilder, words: KGroupedStream[str, str]) -> None:
    words.count(store="s")

    assert only_store(builder) == StoreSpec(name="s", kind="key-value", key=String(), value=Long(), cached=True)
    assert not only_store(builder).timed
    assert isinstance(builder.build().nodes[-1], StreamAggregate)


def test_a_window_store_keeps_size_plus_grace(builder: StreamsBuilder, words: KGroupedStream[str, str]) -> None:
    words.windowed_by(TimeWindows(size=TEN, grace=THREE)).reduce(str.__add__, store="s")

    store = only_store(builder)
    assert (store.kind, store.key, store.value, store.retention_ms) == ("window", String(), String(), 13)
    assert store.timed
    assert isinstance(builder.build().nodes[-1], WindowAggregate)


def test_a_session_store_keeps_gap_plus_grace(builder: StreamsBuilder, words: KGroupedStream[str, str]) -> None:
    sessions = words.windowed_by(SessionWindows(gap=TEN, grace=THREE))
    sessions.aggregate(int, lambda _, word, n: n + 1, lambda _, left, right: left + right, store="s")

    store = only_store(builder)
    assert (store.kind, store.key, store.value, store.retention_ms) == ("session", String(), Long(), 13)
    assert isinstance(builder.build().nodes[-1], SessionAggregate)


def test_a_longer_retention_may_be_asked_for(builder: StreamsBuilder, words: KGroupedStream[str, str]) -> None:
    windows = TimeWindows(size=TEN, grace=timedelta(0))
    words.windowed_by(windows).count(store="s", retention=timedelta(seconds=1))

    assert only_store(builder).retention_ms == 1_000


def test_a_shorter_retention_is_refused(builder: StreamsBuilder, words: KGroupedStream[str, str]) -> None:
    words.windowed_by(TimeWindows(size=TEN, grace=THREE)).count(store="s", retention=TEN)

    with pytest.raises(TopologyError, match=r"store 's' keeps 10 ms, but its windows need 13 ms \(size plus grace\)"):
        builder.build()


def test_a_store_of_sliding_windows_keeps_twice_the_difference_plus_grace(
    builder: StreamsBuilder, words: KGroupedStream[str, str]
) -> None:
    sliding = words.windowed_by(SlidingWindows(difference=TEN, grace=THREE))
    sliding.count(store="s")
    sliding.count(store="t", retention=timedelta(milliseconds=22))

    with pytest.raises(TopologyError, match=r"'t' keeps 22 ms, but .* need 23 ms \(2 \* time difference plus grace\)"):
        builder.build()


def test_an_unlimited_window_is_kept_for_ever(builder: StreamsBuilder, words: KGroupedStream[str, str]) -> None:
    words.windowed_by(UnlimitedWindows()).count(store="s", retention=timedelta(days=100_000))

    with pytest.raises(TopologyError, match=r"need 9223372036854775807 ms \(they never end\)"):
        builder.build()


def test_results_of_unlimited_windows_cannot_wait_for_their_end(
    builder: StreamsBuilder, words: KGroupedStream[str, str]
) -> None:
    words.windowed_by(UnlimitedWindows()).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="s")

    with pytest.raises(TopologyError, match="unlimited windows never close"):
        builder.build()


def test_an_aggregate_that_waits_for_the_end_of_windows_reads_them_back() -> None:
    builder = StreamsBuilder(emit_interval=timedelta(seconds=1))
    words = builder.stream("words", key=str, value=str).group_by_key()
    sessions = words.windowed_by(SessionWindows(gap=TEN, grace=THREE))
    sessions.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="s")

    store, node = only_store(builder), builder.build().nodes[-1]
    assert (store.emits_final, store.cached) == (True, False)
    assert isinstance(node, SessionAggregate)
    assert (node.emit, node.emit_interval_ms) == (EmitStrategy.ON_WINDOW_CLOSE, 1_000)


def test_without_the_record_cache_stores_are_not_cached() -> None:
    builder = StreamsBuilder(record_cache=False)
    builder.stream("words", key=str, value=str).group_by_key().count(store="s")

    assert not only_store(builder).cached


def test_a_windowed_table_is_written_with_its_inner_key_and_the_aggregate_that_closes_its_windows(
    builder: StreamsBuilder, words: KGroupedStream[str, str]
) -> None:
    counts = words.windowed_by(TimeWindows(size=TEN, grace=timedelta(0))).count(store="s")
    counts.filter(lambda key, count: count > 1).to_delta("counts")

    (sink,) = (node for node in builder.build().nodes if isinstance(node, DeltaSink))
    assert (sink.kind, sink.key, sink.value) == (TableKind.WINDOWED, str, int)
    assert sink.window_node == "KSTREAM-AGGREGATE-0000000001"


def test_a_table_is_written_as_changelog_and_a_stream_as_rows(
    builder: StreamsBuilder, words: KGroupedStream[str, str]
) -> None:
    counts = words.count(store="s")
    counts.to_delta("counts")
    counts.to_stream().to_delta("updates")

    kinds = [node.kind for node in builder.build().nodes if isinstance(node, DeltaSink)]
    assert kinds == [TableKind.CHANGELOG, TableKind.APPEND]
