"""Stream-stream joins under construction: names of stores, what must be named, what does not fit."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from deltaworks import JoinWindows, KStream, Materialized, StreamsBuilder, TopologyError
from deltaworks.testing import TopologyTestDriver

WINDOWS = JoinWindows(difference=timedelta(seconds=1), grace=timedelta(seconds=1))


def pair(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def problems(builder: StreamsBuilder) -> list[str]:
    with pytest.raises(TopologyError) as error:
        builder.build()
    return [problem.what for problem in error.value.problems]


def two_streams(
    *, names: Literal["stores", "none"] = "stores", optimize: bool = False
) -> tuple[StreamsBuilder, KStream[str, str], KStream[str, str]]:
    builder = StreamsBuilder(explicit_names=names, optimize=optimize)
    left, right = builder.stream("left", key=str, value=str), builder.stream("right", key=str, value=str)
    return builder, left, right


def test_one_name_names_all_stores_of_a_join() -> None:
    builder, left, right = two_streams()
    left.join(right, pair, WINDOWS, store="inner").to("a")
    left.left_join(right, pair, WINDOWS, store="left").to("b")
    left.outer_join(right, pair, WINDOWS, store="outer").to("c")

    assert [store.name for store in builder.build().stores] == [
        "inner-other-join-store",
        "inner-this-join-store",
        "left-left-shared-join-store",
        "left-outer-other-join-store",
        "left-this-join-store",
        "outer-outer-other-join-store",
        "outer-outer-shared-join-store",
        "outer-outer-this-join-store",
    ]


def test_a_join_needs_a_name_for_its_stores() -> None:
    builder, left, right = two_streams()
    left.outer_join(right, pair, WINDOWS).to("out")

    assert problems(builder) == ["outer_join has no name for its store; names are state, so they are not made up."]


def test_keys_of_both_streams_have_one_type() -> None:
    builder, left, _ = two_streams()
    numbered = builder.stream("numbered", key=int, value=str)
    left.join(numbered, pair, WINDOWS, store="pairs").to("out")  # type: ignore[arg-type]

    (problem,) = problems(builder)
    assert problem == (
        "join: keys of the left stream are string, keys of the right one are long; a join needs keys of one type."
    )


def test_a_self_join_keeps_one_store_if_the_builder_optimizes() -> None:
    for optimize, stores in ((False, 3), (True, 1)):
        builder, left, _ = two_streams(names="none", optimize=optimize)
        left.left_join(left, pair, WINDOWS).to("out")
        plan = builder.build()
        driver = TopologyTestDriver(plan)

        for value in ("a", "b"):
            driver.create_input_topic("left").pipe_input("k", value, timestamp_ms=5)

        assert len(plan.stores) == stores
        assert driver.create_output_topic("out").read_values_to_list() == ["a+a", "b+a", "a+b", "b+b"]


def test_grace_needs_a_versioned_table_and_a_name() -> None:
    builder, left, _ = two_streams()
    table = builder.table("rows", key=str, value=str, store="rows")
    short = builder.table("short", key=str, value=str, store=Materialized("short", history=timedelta(milliseconds=5)))
    left.join(table, pair, grace=timedelta(seconds=1), name="enrich").to("a")
    left.join(short, pair, grace=timedelta(seconds=1)).to("b")

    unversioned, too_short, unnamed = problems(builder)
    assert unversioned == "join: a grace period needs a versioned table, but store 'rows' keeps only the latest rows."
    assert too_short == (
        "join: the grace period is 1000 ms, but store 'short' keeps versions for 5 ms; the history must be at least"
        " the grace period."
    )
    assert unnamed == "join has no name for its buffer; names are state, so they are not made up."


def test_the_records_that_a_join_keeps_can_be_read() -> None:
    builder, left, right = two_streams()
    left.join(right, pair, WINDOWS, store="pairs").to("out")
    driver = TopologyTestDriver(builder.build())

    for value, timestamp_ms in (("a", 1000), ("b", 2000), ("late", 500), ("c", 4000)):
        driver.create_input_topic("left").pipe_input("k", value, timestamp_ms=timestamp_ms)

    assert driver.store("pairs-this-join-store").all() == [("k", 2000, "b"), ("k", 4000, "c")]


def test_an_idle_task_lets_go_of_what_waits() -> None:
    builder, left, right = two_streams()
    table = builder.table("rows", key=str, value=str, store=Materialized("rows", history=timedelta(seconds=5)))
    left.left_join(right, pair, WINDOWS, value=str, store="pairs").to("pairs")
    left.left_join(table, pair, value=str, grace=timedelta(seconds=3), name="enrich").to("enriched")
    driver = TopologyTestDriver(builder.build(), idle_timeout=timedelta(seconds=2))
    driver.create_input_topic("left").pipe_input("k", "a", timestamp_ms=1000)

    driver.advance_wall_clock_time(timedelta(seconds=2))
    early = driver.create_output_topic("pairs").read_values_to_list()
    driver.advance_wall_clock_time(timedelta(seconds=1))

    assert early == []
    assert driver.create_output_topic("pairs").read_values_to_list() == ["a+None"]
    assert driver.create_output_topic("enriched").read_values_to_list() == ["a+None"]
