"""What recorded cases do not show of streams and tables: functions without a key, names of nodes, printing.

Most operators are proved by a recorded case; see `proofs.toml`. The functions here take no fixture, so that
`proofs.py` can call them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import (
    BufferConfig,
    Bytes,
    Double,
    FailOnInvalidTimestamp,
    GlobalKTable,
    Integer,
    JoinWindows,
    KStream,
    KTable,
    LogAndSkipOnInvalidTimestamp,
    Long,
    Materialized,
    Plan,
    RecordContext,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TimestampExtractor,
    TimeWindows,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.clocks import EPOCH
from deltaworks.topology.nodes import Source

Pairs = list[tuple[Any, Any]]
MINUTE = timedelta(minutes=1)


def outputs(
    topology: Callable[[StreamsBuilder], None], given: Iterable[tuple[str, Any, Any]], *, topic: str = "out"
) -> Pairs:
    """What a topology writes to a topic: `given` are `(topic, key, value)`, a second apart."""
    driver = driver_of(topology)
    for second, (name, key, value) in enumerate(given):
        driver.create_input_topic(name).pipe_input(key, value, timestamp_ms=1_000 * second)
    return driver.create_output_topic(topic).read_key_values_to_list()


def driver_of(topology: Callable[[StreamsBuilder], None]) -> TopologyTestDriver:
    return TopologyTestDriver(plan_of(topology))


def plan_of(topology: Callable[[StreamsBuilder], None]) -> Plan:
    builder = StreamsBuilder(explicit_names="none")
    topology(builder)
    return builder.build()


def printed(topology: Callable[[StreamsBuilder], None], given: Iterable[tuple[str, Any, Any]]) -> str:
    driver = driver_of(topology)
    with redirect_stdout(io.StringIO()) as text:
        for name, key, value in given:
            driver.create_input_topic(name).pipe_input(key, value)
    return text.getvalue()


def words(builder: StreamsBuilder) -> KStream[str, str]:
    return builder.stream("words", key=str, value=str)


def users(builder: StreamsBuilder) -> KTable[str, str]:
    return builder.table("users", key=str, value=str)


def everybody(builder: StreamsBuilder) -> GlobalKTable[str, str]:
    return builder.global_table("users", key=str, value=str, store="everybody")


def test_map_values_gets_the_value_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).map_values(str.upper).to("out")

    assert outputs(topology, [("words", "k", "a")]) == [("k", "A")]


def test_flat_map_values_gets_the_value_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).flat_map_values(str.split).to("out")

    assert outputs(topology, [("words", "k", "a b")]) == [("k", "a"), ("k", "b")]


def test_flat_map_values_with_key_gets_both() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).flat_map_values_with_key(lambda key, value: [key, value], value=str).to("out")

    assert outputs(topology, [("words", "k", "a")]) == [("k", "k"), ("k", "a")]


def test_map_values_of_a_table_gets_the_value_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        users(builder).map_values(str.upper).to_stream().to("out")

    assert outputs(topology, [("users", "ann", "x"), ("users", "ann", None)]) == [("ann", "X"), ("ann", None)]


def test_foreach_sees_every_record() -> None:
    seen: Pairs = []

    def topology(builder: StreamsBuilder) -> None:
        words(builder).foreach(lambda key, value: seen.append((key, value)))

    driver_of(topology).create_input_topic("words").pipe_input("k", "a")

    assert seen == [("k", "a")]


def test_print_shows_label_key_and_value() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).print("words")

    assert printed(topology, [("words", "k", "a")]) == "[words]: k, a\n"


def test_print_shows_what_its_mapper_says() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).print("words", mapper=lambda key, value: f"{value} of {key}")

    assert printed(topology, [("words", "k", "a")]) == "[words]: a of k\n"


def left_and_right(given: str) -> list[tuple[str, Any, Any]]:
    """`u` gives ann a row, `w` a word; `W` is a word of bob, who has no row."""
    records = {"u": ("users", "ann", "row"), "w": ("words", "ann", "word"), "W": ("words", "bob", "word")}
    return [records[letter] for letter in given]


def test_join_with_a_table_gets_the_values_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).join(users(builder), lambda word, row: f"{word} {row}", value=str).to("out")

    assert outputs(topology, left_and_right("uwW")) == [("ann", "word row")]


def test_left_join_with_a_table_gets_the_values_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).left_join(users(builder), lambda word, row: f"{word} {row}", value=str).to("out")

    assert outputs(topology, left_and_right("uwW")) == [("ann", "word row"), ("bob", "word None")]


def test_join_with_a_global_table_gets_the_values_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        joined = words(builder).join(
            everybody(builder), lambda word, row: f"{word} {row}", selector=lambda key, _: key, value=str
        )
        joined.to("out")

    assert outputs(topology, left_and_right("uwW")) == [("ann", "word row")]


def test_left_join_with_a_global_table_gets_the_values_alone() -> None:
    def topology(builder: StreamsBuilder) -> None:
        joined = words(builder).left_join(
            everybody(builder), lambda word, row: f"{word} {row}", selector=lambda key, _: key, value=str
        )
        joined.to("out")

    assert outputs(topology, left_and_right("uwW")) == [("ann", "word row"), ("bob", "word None")]


def streams_joined(join: Callable[[KStream[str, str], KStream[str, str], JoinWindows], KStream[str, str]]) -> Pairs:
    """A left record of ann and a right one join; bob has a left one, cid a right one, and then time goes on."""

    def topology(builder: StreamsBuilder) -> None:
        right = builder.stream("right", key=str, value=str)
        join(words(builder), right, JoinWindows(difference=MINUTE, grace=timedelta(0))).to("out")

    driver = driver_of(topology)
    for topic, key, minute in [("words", "bob", 0), ("right", "cid", 0), ("words", "ann", 5), ("right", "ann", 5)]:
        driver.create_input_topic(topic).pipe_input(key, topic, timestamp_ms=60_000 * minute)
    driver.create_input_topic("words").pipe_input("dan", "words", timestamp_ms=60_000 * 10)
    return sorted(driver.create_output_topic("out").read_key_values_to_list())


def pair(left: str | None, right: str | None) -> str:
    return f"{left} {right}"


def test_join_of_streams_gets_the_values_alone() -> None:
    assert streams_joined(lambda left, right, windows: left.join(right, pair, windows)) == [("ann", "words right")]


def test_left_join_of_streams_gets_the_values_alone() -> None:
    assert streams_joined(lambda left, right, windows: left.left_join(right, pair, windows)) == [
        ("ann", "words right"),
        ("bob", "words None"),
    ]


def test_outer_join_of_streams_gets_the_values_alone() -> None:
    assert streams_joined(lambda left, right, windows: left.outer_join(right, pair, windows)) == [
        ("ann", "words right"),
        ("bob", "words None"),
        ("cid", "None right"),
    ]


def _named(builder: StreamsBuilder, operator: str) -> None:
    windows = JoinWindows(difference=MINUTE, grace=timedelta(0))
    match operator:
        case "stream":
            builder.stream("words", key=str, value=str, name="given").foreach(print)
        case "filter":
            words(builder).filter(lambda *_: True, name="given").foreach(print)
        case "to":
            words(builder).to("out", name="given")
        case "print":
            words(builder).print("words", name="given")
        case "join":
            words(builder).join(users(builder), pair, name="given").foreach(print)
        case "join_of_streams":
            words(builder).join(words(builder), pair, windows, name="given").foreach(print)
        case "outer_join":
            words(builder).outer_join(words(builder), pair, windows, name="given").foreach(print)
        case "join_by_foreign_key":
            rows = builder.table("rows", key=str, value=str)
            users(builder).join(rows, pair, foreign_key=lambda _, row: row, name="given").to_stream().to("out")
        case _:
            raise ValueError(operator)


@pytest.mark.parametrize(
    "operator", ["stream", "filter", "to", "print", "join", "join_of_streams", "outer_join", "join_by_foreign_key"]
)
def test_a_node_has_the_name_it_is_given(operator: str) -> None:
    assert "given" in plan_of(lambda builder: _named(builder, operator)).describe()


def test_a_store_of_a_join_has_the_name_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = JoinWindows(difference=MINUTE, grace=timedelta(0))
        words(builder).join(words(builder), pair, windows, store="given").foreach(print)

    assert [store.name.partition("-")[0] for store in plan_of(topology).stores] == ["given", "given"]


def test_an_exchange_has_the_partitions_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).repartition(partitions=7).to("out")

    assert plan_of(topology).tasks({"words": 2}) == (2, 7)


def test_an_exchange_has_the_serdes_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        mapped = words(builder).map(lambda key, value: (len(key), len(value) / 2))
        mapped.repartition(key=Integer(), value=Double()).to("out")

    assert outputs(topology, [("words", "k", "abc")]) == [(1, 1.5)]


def test_a_sink_has_the_serdes_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).map(lambda key, value: (len(key), len(value) / 2)).to("out", key=Integer(), value=Double())

    assert outputs(topology, [("words", "k", "abc")]) == [(1, 1.5)]


def test_a_grouped_table_has_the_serdes_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        lengths = users(builder).group_by(lambda _, row: (len(row), 0.5), key=Long(), value=Double())
        lengths.reduce(lambda old, new: old + new, lambda old, new: old - new).to_stream().to("out")

    assert outputs(topology, [("users", "ann", "abc"), ("users", "bob", "abc")]) == [(3, 0.5), (3, 1.0)]


def test_a_store_has_the_serdes_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        lengths = words(builder).map_values(len)
        lengths.to_table(store=Materialized("lengths", key=Bytes(), value=Integer())).to_stream().foreach(print)

    (store,) = plan_of(topology).stores

    assert (store.key, store.value) == (Bytes(), Integer())


def test_a_retention_may_be_longer_than_its_windows() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windowed = words(builder).group_by_key().windowed_by(TimeWindows(size=MINUTE, grace=timedelta(0)))
        windowed.count(store=Materialized("counts", retention=timedelta(days=1)))

    driver = driver_of(topology)
    for minute in (0, 60):
        driver.create_input_topic("words").pipe_input("k", "a", timestamp_ms=60_000 * minute)

    assert [window.start_ms for window, _ in driver.store("counts").all()] == [0, 3_600_000]


def test_without_caching_every_update_is_forwarded() -> None:
    def topology(builder: StreamsBuilder) -> None:
        counts = words(builder).group_by_key().count(store=Materialized("counts", caching=False))
        counts.to_stream().to("out")

    assert not plan_of(topology).stores[0].cached


def test_a_sink_writes_where_its_partitioner_says() -> None:
    """No partition: the record is dropped."""

    def topology(builder: StreamsBuilder) -> None:
        words(builder).to("out", partitioner=lambda topic, key, value, partitions: () if key == "ann" else None)

    assert outputs(topology, [("words", "ann", "a"), ("words", "bob", "b")]) == [("bob", "b")]


def test_an_exchange_sends_where_its_partitioner_says() -> None:
    def topology(builder: StreamsBuilder) -> None:
        exchange = words(builder).repartition(
            partitioner=lambda topic, key, value, partitions: () if key == "ann" else None
        )
        exchange.to("out")

    assert outputs(topology, [("words", "ann", "a"), ("words", "bob", "b")]) == [("bob", "b")]


def test_a_join_with_grace_waits_for_late_rows() -> None:
    def topology(builder: StreamsBuilder) -> None:
        versioned = builder.table("users", key=str, value=str, store=Materialized("users", history=2 * MINUTE))
        words(builder).join(versioned, pair, value=str, grace=MINUTE).to("out")

    driver = driver_of(topology)
    at_words, at_users = driver.create_input_topic("words"), driver.create_input_topic("users")
    at_words.pipe_input("ann", "word", timestamp_ms=10_000)
    at_users.pipe_input("ann", "late row", timestamp_ms=5_000)
    at_words.pipe_input("bob", "word", timestamp_ms=100_000)

    assert driver.create_output_topic("out").read_key_values_to_list() == [("ann", "word late row")]


def test_a_suppressed_table_has_the_name_it_is_given() -> None:
    def topology(builder: StreamsBuilder) -> None:
        limit = Suppressed.until_time_limit(MINUTE, BufferConfig.unbounded())
        users(builder).suppress(limit, name="given").to_stream().to("out")

    assert "Processor: given " in plan_of(topology).describe()


CONTEXT = {"topic": "words", "partition": 0, "offset": 0, "timestamp_ms": 5, "headers": (("trace", b"x"),)}


@pytest.mark.parametrize("member", CONTEXT)
def test_who_names_a_topic_is_told(member: str) -> None:
    told = []

    def name_of(key: str, value: str, context: RecordContext) -> str:
        told.append(getattr(context, member))
        return "out"

    driver = driver_of(lambda builder: words(builder).to_extracted(name_of))
    driver.create_input_topic("words").pipe_input("ann", "a", timestamp_ms=5, headers=(("trace", b"x"),))

    assert told == [CONTEXT[member]]


def times_with(extractor: TimestampExtractor) -> list[int]:
    """Of a record at 5 and one with a negative timestamp, at wall clock 9."""

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("words", key=str, value=str, timestamp_extractor=extractor).to("out")

    driver = TopologyTestDriver(plan_of(topology), initial_wall_clock=EPOCH + timedelta(milliseconds=9))
    for timestamp_ms in (5, -2):
        driver.create_input_topic("words").pipe_input("ann", "a", timestamp_ms=timestamp_ms)
    return [record.timestamp_ms for record in driver.create_output_topic("out").read_records_to_list()]


def test_a_record_without_a_valid_timestamp_may_be_skipped() -> None:
    assert times_with(LogAndSkipOnInvalidTimestamp()) == [5]


def test_a_record_without_a_valid_timestamp_may_have_that_of_its_partition() -> None:
    assert times_with(UsePartitionTimeOnInvalidTimestamp()) == [5, 5]


def test_a_record_without_a_valid_timestamp_may_be_an_error() -> None:
    fail = FailOnInvalidTimestamp()

    # On its own a source does not call it, because it does the same without.
    with pytest.raises(StreamsError, match="has the timestamp -2"):
        times_with(lambda record, partition_time_ms: fail(record, partition_time_ms))


def test_records_may_have_the_wall_clock_as_their_time() -> None:
    assert times_with(WallclockTimestampExtractor()) == [9, 9]


def test_a_table_knows_the_name_of_its_store() -> None:
    builder = StreamsBuilder()

    assert builder.table("users", key=str, value=str, store="rows").queryable_store_name == "rows"


def test_names_of_stores_may_be_generated() -> None:
    builder = StreamsBuilder(explicit_names="none")
    words(builder).group_by_key().count()

    assert [store.name for store in builder.build().stores] == ["KSTREAM-AGGREGATE-STATE-STORE-0000000001"]


def test_a_global_table_knows_the_name_of_its_store() -> None:
    assert everybody(StreamsBuilder()).queryable_store_name == "everybody"


def test_a_source_knows_where_a_new_pipeline_begins_to_read() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("words", key=str, value=str, offset_reset="latest").foreach(print)

    assert [node.offset_reset for node in plan_of(topology).nodes if isinstance(node, Source)] == ["latest"]


@pytest.mark.parametrize("setting", ["in_memory", "logging"])
def test_a_setting_that_changes_nothing_is_taken(setting: str) -> None:
    def topology(builder: StreamsBuilder, **settings: bool) -> None:
        words(builder).to_table(store=Materialized("words", **settings)).to_stream().foreach(print)  # type: ignore[arg-type]

    changed = plan_of(lambda builder: topology(builder, **{setting: setting == "in_memory"}))

    assert changed.stores == plan_of(topology).stores
