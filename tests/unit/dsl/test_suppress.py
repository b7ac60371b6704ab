from __future__ import annotations

from datetime import timedelta
from typing import assert_type

import pytest

from deltaworks import (
    BufferConfig,
    KTable,
    Materialized,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TimeWindows,
    TopologyError,
    Windowed,
)
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.testing import TopologyTestDriver

UNBOUNDED = BufferConfig.unbounded()
TEN_MS = timedelta(milliseconds=10)


def counts(builder: StreamsBuilder) -> KTable[Windowed[str], int]:
    clicks = builder.stream("clicks", key=str, value=str).group_by_key()
    return clicks.windowed_by(TimeWindows(size=TEN_MS, grace=timedelta(0))).count(store="counts")


def only_problem(builder: StreamsBuilder) -> tuple[str, str | None]:
    with pytest.raises(TopologyError) as error:
        builder.build()
    (problem,) = error.value.problems
    return problem.what, problem.hint


def test_the_final_rows_of_windows_reach_a_delta_table_and_are_final_there() -> None:
    builder = StreamsBuilder()
    final = counts(builder).suppress(Suppressed.until_window_closes(UNBOUNDED), name="final")
    assert_type(final, KTable[Windowed[str], int])
    final.to_delta("finals")
    driver = TopologyTestDriver(builder.build())
    clicks = driver.create_input_topic("clicks")

    clicks.pipe_input("ann", "x", timestamp_ms=3)
    assert driver.table("finals").rows == {}
    clicks.pipe_input("ann", "x", timestamp_ms=10)

    assert driver.table("finals").rows == {Windowed("ann", 0, 10): 1}
    assert driver.table("finals").final_rows == {Windowed("ann", 0, 10): 1}


def test_a_join_sees_the_row_from_before_as_long_as_its_update_is_held_back() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", key=str, value=str, store="users")
    held = users.suppress(Suppressed.until_time_limit(TEN_MS, UNBOUNDED), name="held")
    orders = builder.stream("orders", key=str, value=str)
    orders.left_join(held, lambda order, user: f"{order}/{user}", value=str).to("seen")
    driver = TopologyTestDriver(builder.build())
    user, order = driver.create_input_topic("users"), driver.create_input_topic("orders")
    seen = driver.create_output_topic("seen")

    user.pipe_input("u", "ann", timestamp_ms=0)
    order.pipe_input("u", "1", timestamp_ms=1)
    user.pipe_input("x", "time passes", timestamp_ms=10)
    order.pipe_input("u", "2", timestamp_ms=11)

    assert seen.read_values_to_list() == ["1/None", "2/ann"]


def test_a_full_buffer_stops_the_stream_and_says_why() -> None:
    builder = StreamsBuilder()
    strict = BufferConfig.of_max_records(1).shut_down_when_full()
    counts(builder).suppress(Suppressed.until_window_closes(strict), name="final").to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    clicks = driver.create_input_topic("clicks")
    clicks.pipe_input("ann", "x", timestamp_ms=3)

    with pytest.raises(StreamsError, match="the buffer of suppress is full: it holds 2 of 1 records") as error:
        clicks.pipe_input("bob", "x", timestamp_ms=4)

    assert error.value.position is not None
    assert error.value.position.operator == "final"


def test_a_full_buffer_in_bytes_lets_the_oldest_go() -> None:
    builder = StreamsBuilder()
    small = Suppressed.until_time_limit(timedelta(days=1), BufferConfig.of_max_bytes(100))
    users = builder.table("users", key=str, value=str, store="users")
    users.suppress(small, name="small").to_stream().to("out")
    driver = TopologyTestDriver(builder.build())
    updates = driver.create_input_topic("users")

    updates.pipe_input("ann", "a" * 30, timestamp_ms=1)  # 28 + 3 + 30 + 5
    updates.pipe_input("bob", "b", timestamp_ms=0)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("bob", "b")]


def test_a_function_below_fails_on_the_record_that_was_held_back() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", key=str, value=str, store="users")
    limited = users.suppress(Suppressed.until_time_limit(TEN_MS, UNBOUNDED), name="held")
    limited.to_stream().map_values(int, value=int).to("numbers")
    driver = TopologyTestDriver(builder.build(), errors=ErrorPolicy.of("continue"))
    updates = driver.create_input_topic("users")

    updates.pipe_input("ann", "not a number", timestamp_ms=1)
    updates.pipe_input("bob", "2", timestamp_ms=20)

    (letter,) = driver.dead_letters
    assert (letter.source.topic, letter.source.offset, letter.timestamp_ms) == ("users", 0, 1)
    assert (letter.key, letter.value) == (None, None)


def test_a_table_without_windows_never_closes_any() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", key=str, value=str, store="users")
    users.suppress(Suppressed.until_window_closes(UNBOUNDED), name="held")  # type: ignore[arg-type]

    what, hint = only_problem(builder)

    assert what == "suppress until windows close: this table is not made from windows, so none ever closes."
    assert hint == "suppress a table of windowed_by(...), or use Suppressed.until_time_limit(...)"


def test_a_versioned_table_is_not_held_back_nor_one_that_inherits_its_versions() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", key=str, value=str, store=Materialized("users", history=timedelta(hours=1)))
    limit = Suppressed.until_time_limit(TEN_MS, UNBOUNDED)
    users.filter(lambda _, user: bool(user)).suppress(limit, name="held")

    what, _ = only_problem(builder)

    assert what == "suppress cannot hold back a versioned table, because its updates may belong to the past."


def test_the_buffer_is_state_so_it_needs_a_name() -> None:
    builder = StreamsBuilder()
    counts(builder).suppress(Suppressed.until_window_closes(UNBOUNDED))
    assert only_problem(builder)[0] == "suppress has no name for its store; names are state, so they are not made up."

    builder = StreamsBuilder()
    counts(builder).suppress(Suppressed.until_window_closes(UNBOUNDED), name="a")
    counts_again = builder.table("t", key=str, value=int, store="t")
    counts_again.suppress(Suppressed.until_time_limit(TEN_MS, UNBOUNDED), name="b", store="mine")
    assert [store.name for store in builder.build().stores if store.kind == "suppress"] == ["a-store", "mine"]
