"""A stream finds the rows of a table by its key."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import StreamsBuilder, TimeWindows, TopologyError, Windowed
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes import StreamTableJoin


def test_a_derived_table_is_looked_up_in_the_store_it_comes_from() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", key=str, value=str, store="users")
    shouting = users.filter(lambda _, name: bool(name)).map_values(str.upper)
    builder.stream("words", key=str, value=str).join(shouting, str.__add__, value=str).to("out")

    (join,) = (node for node in builder.build().nodes if isinstance(node, StreamTableJoin))

    assert join.table_stores == ("users",)


def test_an_aggregate_can_be_joined() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    counts = words.group_by_key().count(store="counts")
    words.left_join_with_key(counts, lambda key, word, count: f"{key} {word} {count}", value=str).to("out")

    (join,) = (node for node in builder.build().nodes if isinstance(node, StreamTableJoin))

    assert (join.table_stores, join.kind, join.joiner("a", "b", 1)) == (("counts",), "left", "a b 1")


def problem(builder: StreamsBuilder) -> str:
    with pytest.raises(TopologyError) as error:
        builder.build()
    (only,) = error.value.problems
    assert only.hint
    return only.what


def test_keys_have_one_type() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", key=int, value=str, store="users")
    words = builder.stream("words", key=str, value=str)
    words.join(users, str.__add__, value=str).to("out")  # type: ignore[arg-type]

    assert problem(builder) == (
        "join: keys of the stream are string, keys of the table of store 'users' are long;"
        " a join needs keys of one type."
    )


def test_a_windowed_table_has_no_rows_for_plain_keys() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    windows = TimeWindows(size=timedelta(seconds=1), grace=timedelta(0))
    counts = words.group_by_key().windowed_by(windows).count(store="counts")
    words.join(counts, lambda word, count: word, value=str).to("out")  # type: ignore[arg-type]

    assert problem(builder) == (
        "join: keys of the stream are string, keys of the table of store 'counts' are time-windowed(string);"
        " a join needs keys of one type."
    )


def test_windowed_keys_find_the_rows_of_a_windowed_table() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    windows = TimeWindows(size=timedelta(milliseconds=10), grace=timedelta(0))
    counts = words.group_by_key().windowed_by(windows).count(store="counts")
    lengths = counts.to_stream().map_values(str, value=str)
    lengths.join(counts, lambda text, count: f"{text} {count}", value=str).to("out")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("words").pipe_input("a", "x", timestamp_ms=12)

    assert driver.create_output_topic("out").read_key_value() == (Windowed("a", 10, 20), "1 1")


def test_handles_of_two_builders_do_not_mix() -> None:
    builder, other = StreamsBuilder(), StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    words.merge(other.stream("more", key=str, value=str)).to("out")

    assert problem(builder) == "merge: the other stream belongs to another builder."
