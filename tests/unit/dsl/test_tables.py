"""Tables: their stores, types, and what is refused. What they compute is in the recorded cases."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import KTable, Materialized, SessionWindows, StreamsBuilder, TimeWindows, TopologyError, Windowed
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes import TableSource


def table(builder: StreamsBuilder, topic: str = "rows", store: str = "") -> KTable[str, int]:
    return builder.table(topic, key=str, value=int, store=store)


def problem(builder: StreamsBuilder) -> str:
    with pytest.raises(TopologyError) as error:
        builder.build()
    (only,) = error.value.problems
    assert only.hint
    assert only.where
    assert "test_tables.py:" in only.where
    return only.what


def by_rest(_: str, value: int) -> tuple[int, int]:
    return value % 3, value


def test_a_table_that_nobody_looks_up_keeps_nothing() -> None:
    builder = StreamsBuilder()
    table(builder).filter(lambda _, value: value > 0).to_stream().to("out")

    assert builder.build().stores == ()


def test_a_joined_table_gets_a_store_and_its_name_is_asked_for() -> None:
    builder = StreamsBuilder()
    table(builder, "left", "left").join(table(builder, "right"), int.__add__)

    assert problem(builder) == "the table has no name for its store; names are state, so they are not made up."


def test_grouping_a_table_gives_it_a_store() -> None:
    builder = StreamsBuilder(explicit_names="none")
    table(builder).group_by(by_rest).count()

    (source,) = (node for node in builder.build().nodes if isinstance(node, TableSource))
    assert source.store is not None
    assert source.old_values


def test_the_store_of_an_aggregate_over_a_table_needs_a_name() -> None:
    builder = StreamsBuilder()
    table(builder, store="rows").group_by(by_rest).count()

    assert problem(builder) == "count has no name for its store; names are state, so they are not made up."


def test_details_of_a_join_without_a_name_ask_for_one() -> None:
    builder = StreamsBuilder()
    left, right = table(builder, "left", "left"), table(builder, "right", "right")
    left.join(right, int.__add__, value=int, store=Materialized(caching=False))

    assert problem(builder) == "join has no name for its store; names are state, so they are not made up."


def test_group_by_takes_its_types_from_the_selector() -> None:
    builder = StreamsBuilder()
    counts = table(builder, store="rows").group_by(by_rest).count(store="counts")
    counts.to_stream().to("out")

    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("rows").pipe_key_value_list([("a", 4), ("b", 7), ("a", 5)])

    assert driver.store("counts").all() == [(1, 1), (2, 1)]


def test_an_exchange_needs_the_types_of_a_grouping() -> None:
    builder = StreamsBuilder()
    table(builder, store="rows").group_by(lambda _, value: (value, value), key=int).count(store="counts")

    assert problem(builder).startswith("count needs the type of the value, but group_by at ")


def test_tables_of_two_builders_do_not_join() -> None:
    builder = StreamsBuilder()
    table(builder, store="left").join(table(StreamsBuilder(), store="right"), int.__add__)

    assert problem(builder) == "join: the other table belongs to another builder."


def test_joined_tables_have_keys_of_one_type() -> None:
    builder = StreamsBuilder()
    other = builder.table("other", key=int, value=int, store="other")
    table(builder, store="rows").outer_join(other, lambda left, right: (left or 0) + (right or 0))  # type: ignore[arg-type]

    assert problem(builder) == (
        "outer_join: keys of this table are string, keys of the other one are long; a join needs keys of one type."
    )


def test_the_queryable_store_is_the_one_that_the_user_named() -> None:
    builder = StreamsBuilder(explicit_names="none")
    rows, unnamed = table(builder, "a", "rows"), table(builder, "b")
    joined = rows.join(unnamed, int.__add__, store="joined")
    generated = rows.group_by(by_rest).count()

    assert [each.queryable_store_name for each in (rows, joined)] == ["rows", "joined"]
    assert [each.queryable_store_name for each in (unnamed, generated)] == [None, None]
    assert rows.filter(lambda _, value: value > 0).queryable_store_name is None


def test_an_aggregate_can_keep_a_history() -> None:
    builder = StreamsBuilder()
    records = builder.stream("in", key=str, value=int)
    records.group_by_key().count(store=Materialized("counts", history=timedelta(milliseconds=50)))

    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in")
    for timestamp_ms in (10, 20, 5):
        topic.pipe_input("k", 1, timestamp_ms=timestamp_ms)

    assert driver.store("counts").get("k") == (3, 20)
    assert driver.store("counts").get_as_of("k", 19) == (1, 10)


def test_windows_keep_no_history() -> None:
    builder = StreamsBuilder()
    windows = TimeWindows(size=timedelta(seconds=1), grace=timedelta(0))
    records = builder.stream("in", key=str, value=int).group_by_key().windowed_by(windows)
    records.count(store=Materialized("counts", history=timedelta(seconds=1)))

    assert problem(builder) == "count: store 'counts' keeps windows, so it cannot keep a history of versions."


def test_a_window_of_joined_tables_is_final_when_it_is_for_both() -> None:
    builder = StreamsBuilder()
    strict = TimeWindows(size=timedelta(milliseconds=10), grace=timedelta(0))
    patient = TimeWindows(size=timedelta(milliseconds=10), grace=timedelta(milliseconds=100))
    left = builder.stream("left", key=str, value=int).group_by_key().windowed_by(strict).count(store="left")
    right = builder.stream("right", key=str, value=int).group_by_key().windowed_by(patient).count(store="right")
    left.join(right, int.__add__, value=int).to_delta("joined")

    driver = TopologyTestDriver(builder.build())
    for timestamp_ms in (1, 50):
        for topic in ("left", "right"):
            driver.create_input_topic(topic).pipe_input("k", 1, timestamp_ms=timestamp_ms)

    joined = driver.table("joined")
    assert joined.rows == {Windowed("k", 0, 10): 2, Windowed("k", 50, 60): 2}
    assert joined.final_before_ms == 0
    for topic in ("left", "right"):
        driver.create_input_topic(topic).pipe_input("k", 1, timestamp_ms=112)
    assert joined.final_before_ms == 13


def test_a_session_is_gone_before_its_delete_reaches_a_join() -> None:
    builder = StreamsBuilder(record_cache=False)
    windows = SessionWindows(gap=timedelta(milliseconds=10), grace=timedelta(0))
    records = builder.stream("in", key=str, value=int)
    sessions = records.group_by_key().windowed_by(windows).count(store="sessions")
    twice = sessions.map_values(lambda count: 2 * count, value=int)
    sessions.join(twice, int.__add__).to_stream().foreach(lambda key, value: seen.append((key.start_ms, value)))
    seen: list[tuple[int, int | None]] = []

    driver = TopologyTestDriver(builder.build())
    for timestamp_ms in (0, 5):
        driver.create_input_topic("in").pipe_input("k", 1, timestamp_ms=timestamp_ms)

    assert seen == [(0, 3), (0, 3), (0, 6), (0, 6)]


def test_a_versioned_table_keeps_the_latest_versions_in_delta() -> None:
    builder = StreamsBuilder()
    store = Materialized("rows", history=timedelta(milliseconds=100))
    builder.table("rows", key=str, value=int, store=store).to_delta("rows")

    driver = TopologyTestDriver(builder.build())
    for value, timestamp_ms in ((1, 10), (3, 30), (2, 20)):
        driver.create_input_topic("rows").pipe_input("k", value, timestamp_ms=timestamp_ms)

    assert driver.table("rows").rows == {"k": 3}
    assert [row.value for row in driver.table("rows").changes] == [1, 3]
