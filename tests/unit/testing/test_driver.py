"""The test driver as its user sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from deltaworks import (
    DeadLetters,
    Json,
    Pipeline,
    Plan,
    SerializationError,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    String,
    TimeWindows,
    Windowed,
)
from deltaworks.testing import TestRecord, TopologyTestDriver
from deltaworks.testing.clocks import EPOCH


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


class Order(msgspec.Struct, frozen=True):
    amount: int
    tier: str = "STANDARD"


def positive_counts(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders", key=str, value=Json(Order)).filter(lambda _, order: order.amount > 0)
    orders.to("positive")
    orders.to_delta("orders")
    (
        orders.group_by_key()
        .windowed_by(TimeWindows(size=timedelta(seconds=10), grace=timedelta(0)))
        .count(store="counts")
        .to_delta("order_counts")
    )


def pipeline(topology: Callable[[StreamsBuilder], None], **options: object) -> Pipeline:
    return Pipeline(name="under-test", topology=topology, **options)  # type: ignore[arg-type]


def test_record_is_processed_when_pipe_input_returns() -> None:
    driver = TopologyTestDriver(pipeline(positive_counts))
    orders = driver.create_input_topic("orders")
    positive = driver.create_output_topic("positive")

    orders.pipe_input("ann", Order(5), timestamp_ms=1_000)
    orders.pipe_input("ann", Order(0), timestamp_ms=2_000)
    orders.pipe_input("bob", Order(7), timestamp_ms=9_000)

    assert positive.read_key_values_to_list() == [("ann", Order(5)), ("bob", Order(7))]
    assert driver.store("counts").fetch("ann", 0) == 1
    assert driver.store("counts").all() == [(Windowed("ann", 0, 10_000), 1), (Windowed("bob", 0, 10_000), 1)]
    assert [row.value for row in driver.table("orders").rows] == [Order(5), Order(7)]


def test_window_table_knows_which_rows_are_final() -> None:
    driver = TopologyTestDriver(pipeline(positive_counts))
    orders = driver.create_input_topic("orders")

    orders.pipe_input("ann", Order(5), timestamp_ms=1_000)
    orders.pipe_input("ann", Order(5), timestamp_ms=12_000)

    table = driver.table("order_counts")
    assert table.rows == {Windowed("ann", 0, 10_000): 1, Windowed("ann", 10_000, 20_000): 1}
    assert table.final_rows == {Windowed("ann", 0, 10_000): 1}


def test_keyed_table_is_a_snapshot_and_its_changes() -> None:
    def users(builder: StreamsBuilder) -> None:
        builder.table("users", key=str, value=str, store="users").to_delta("users")

    driver = TopologyTestDriver(pipeline(users))
    topic = driver.create_input_topic("users")
    topic.pipe_key_value_list([("ann", "Ann"), ("bob", "Bob"), ("ann", None)])

    assert driver.table("users").rows == {"bob": "Bob"}
    assert [(row.key, row.value) for row in driver.table("users").changes] == [
        ("ann", "Ann"),
        ("bob", "Bob"),
        ("ann", None),
    ]
    assert driver.store("users").get("bob") == "Bob"
    assert driver.store("users").get("ann") is None
    assert len(driver.store("users")) == 1


def test_sessions_can_be_read_by_key() -> None:
    def sessions(builder: StreamsBuilder) -> None:
        windows = SessionWindows(gap=timedelta(milliseconds=50), grace=timedelta(0))
        builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows).count(store="s").to_delta("s")

    driver = TopologyTestDriver(pipeline(sessions))
    topic = driver.create_input_topic("in", advance=timedelta(milliseconds=30))
    topic.pipe_key_value_list([("a", "x"), ("a", "y"), ("b", "z")])

    assert driver.store("s").fetch("a") == [(Windowed("a", 0, 30), 2)]
    assert driver.store("s").all() == [(Windowed("a", 0, 30), 2), (Windowed("b", 60, 60), 1)]


def test_record_crosses_an_exchange_before_pipe_input_returns() -> None:
    def by_tier(builder: StreamsBuilder) -> None:
        orders = builder.stream("orders", key=str, value=Json(Order))
        orders.group_by(lambda _, order: order.tier, key=str, name="by-tier").count(store="tiers").to_stream().to(
            "tiers"
        )

    driver = TopologyTestDriver(pipeline(by_tier))
    orders = driver.create_input_topic("orders")
    orders.pipe_input("ann", Order(5, "PREMIUM"))
    orders.pipe_input("bob", Order(6, "PREMIUM"))

    assert driver.create_output_topic("tiers").read_key_values_to_map() == {"PREMIUM": 2}
    assert list(driver.produced) == ["tiers"]


def test_output_topic_shows_what_the_topology_sent_and_not_what_was_piped_into_it() -> None:
    builder = StreamsBuilder()
    builder.stream("first", key=str, value=str).to("second")
    builder.stream("second", key=str, value=str).map_values(str.upper).to("third")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("second").pipe_input("k", "piped")
    driver.create_input_topic("first").pipe_input("k", "sent")

    assert driver.create_output_topic("second").read_values_to_list() == ["sent"]
    assert driver.create_output_topic("third").read_values_to_list() == ["PIPED", "SENT"]
    assert {topic: len(records) for topic, records in driver.produced.items()} == {"second": 1, "third": 2}


def test_error_is_raised_by_pipe_input_and_ends_the_driver() -> None:
    driver = TopologyTestDriver(pipeline(positive_counts))
    orders = driver.create_input_topic("orders")

    with pytest.raises(StreamsError, match="cannot be read"):
        orders.pipe_raw(b"ann", b"{")
    with pytest.raises(StreamsError):
        orders.pipe_input("ann", Order(5))


def test_with_continue_a_bad_record_is_a_dead_letter() -> None:
    driver = TopologyTestDriver(pipeline(positive_counts, on_error="continue", dead_letters=DeadLetters(topic="dead")))
    orders = driver.create_input_topic("orders")

    orders.pipe_raw(b"ann", b"{", timestamp_ms=9, headers=(("h", None),))
    orders.pipe_input("ann", Order(5))

    (letter,) = driver.dead_letters
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"ann", b"{", 9)
    dead = driver.create_output_topic("dead", key=String(), value=String()).read_record()
    assert (dead.key, dead.value, dead.timestamp_ms, dead.headers[0]) == ("ann", "{", 9, ("h", None))
    assert driver.metrics.dead_letters == 1
    assert driver.metrics.records_in == 2


def test_wall_clock_does_not_go_back() -> None:
    driver = TopologyTestDriver(pipeline(positive_counts))
    driver.advance_wall_clock_time(timedelta(seconds=5))

    with pytest.raises(ValueError, match="cannot go back"):
        driver.advance_wall_clock_time(timedelta(seconds=-1))


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    driver = TopologyTestDriver(pipeline(positive_counts))

    with pytest.raises(KeyError, match="no store 'x'; it has: counts"):
        driver.store("x")
    with pytest.raises(KeyError, match="no table 'x'; it has: order_counts, orders"):
        driver.table("x")
    with pytest.raises(KeyError, match="no input topic 'x'; it has: orders"):
        driver.create_input_topic("x")
    with pytest.raises(KeyError, match="no output topic 'x'; it has: positive"):
        driver.create_output_topic("x")


def test_plan_without_a_pipeline_can_be_tested(driver_for: Callable[[Plan], TopologyTestDriver]) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values(str.upper).to("out")
    driver = driver_for(builder.build())

    driver.create_input_topic("in").pipe_record(TestRecord("k", "shout", 7, (("h", b"1"),)))

    assert driver.create_output_topic("out").read_record() == TestRecord("k", "SHOUT", 7, (("h", b"1"),))


def test_topic_clock_gives_the_timestamps() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    driver = TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("in", start=EPOCH + ms(100), advance=timedelta(milliseconds=5))
    out = driver.create_output_topic("out")

    topic.pipe_value_list(["a", "b"])
    topic.advance_time(timedelta(milliseconds=50))
    topic.pipe_input("k", None)
    topic.pipe_input("k", "c", at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))

    assert [record.timestamp_ms for record in out.read_records_to_list()] == [100, 105, 160, 1000]
    assert out.is_empty


def test_reading_too_much_says_what_to_look_at() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    out = TopologyTestDriver(builder.build()).create_output_topic("out")

    with pytest.raises(LookupError, match=r"no record left in topic 'out'; 0 have been read.\n  Hint"):
        out.read_value()


def test_input_of_the_wrong_type_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    topic = TopologyTestDriver(builder.build()).create_input_topic("in")

    with pytest.raises(SerializationError, match="cannot be written as long"):
        topic.pipe_input("k", "text")


def checked(builder: StreamsBuilder) -> None:
    stream = builder.stream("in", key=str, value=int)
    stream.to("seen")
    stream.map_values(lambda value: 12 // value, value=int).to("out")
    stream.group_by_key().count(store="counts").to_stream().to("counted")


def test_results_up_to_a_failure_can_be_read() -> None:
    driver = TopologyTestDriver(pipeline(checked))
    topic = driver.create_input_topic("in")
    topic.pipe_input("a", 4)

    with pytest.raises(StreamsError, match="ZeroDivisionError"):
        topic.pipe_input("b", 0)
    with pytest.raises(StreamsError, match="ZeroDivisionError"):
        topic.pipe_input("c", 1)

    assert driver.create_output_topic("seen").read_values_to_list() == [4, 0]
    assert driver.create_output_topic("out").read_values_to_list() == [3]
    assert driver.produced_topics == ["counted", "out", "seen"]


def test_stores_are_read_by_name_or_all_at_once() -> None:
    driver = TopologyTestDriver(pipeline(checked))
    driver.create_input_topic("in").pipe_input("a", 4)

    assert {name: store.all() for name, store in driver.stores.items()} == {"counts": [("a", 1)]}


def test_driver_that_is_closed_takes_no_records_and_shows_its_results() -> None:
    with TopologyTestDriver(pipeline(checked)) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 4)

    with pytest.raises(ValueError, match="the test driver is closed"):
        topic.pipe_input("a", 4)
    assert driver.create_output_topic("out").read_values_to_list() == [3]
    assert driver.store("counts").get("a") == 1


def test_lists_of_records_may_have_times_of_their_own() -> None:
    driver = TopologyTestDriver(pipeline(checked))
    topic = driver.create_input_topic("in", start=EPOCH + ms(1))

    topic.pipe_key_value_list([("a", 1), ("a", 2)], start=EPOCH + ms(10), advance=timedelta(milliseconds=5))
    topic.pipe_value_list([3], start=EPOCH + ms(30))
    topic.pipe_value(4)

    assert [record.timestamp_ms for record in driver.create_output_topic("seen").read_records_to_list()] == [
        10,
        15,
        30,
        1,
    ]


def test_map_of_records_needs_keys() -> None:
    driver = TopologyTestDriver(pipeline(checked))
    topic, seen = driver.create_input_topic("in"), driver.create_output_topic("seen")

    topic.pipe_key_value_list([("a", 1), ("a", 2)])
    assert seen.read_key_values_to_map() == {"a": 2}
    topic.pipe_value(4)
    with pytest.raises(ValueError, match="a record of topic 'seen' has no key"):
        seen.read_key_values_to_map()


def test_driver_is_made_in_a_fraction_of_a_moment() -> None:
    plan = pipeline(positive_counts).plan()
    begin = time.process_time()

    for _ in range(20):
        TopologyTestDriver(plan).create_input_topic("orders").pipe_input("ann", Order(1))

    # It takes less than a millisecond; the bound is for a machine that is busy with ten other things.
    assert (time.process_time() - begin) / 20 < 0.05
