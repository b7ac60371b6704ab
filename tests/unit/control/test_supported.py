"""What the streaming host cannot run is refused before it starts, all of it at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import BufferConfig, Pipeline, StreamsBuilder, Suppressed, TopologyError
from deltaworks.control import supported


def test_every_reason_is_told_with_its_line() -> None:
    builder = StreamsBuilder("orders")
    rows = builder.global_table("rows", key=str, value=str, store="rows")
    stream = builder.stream(pattern="order-.*", key=str, value=str, offset_reset="latest")
    stream.left_join_global(rows, lambda key, _: key, lambda value, row: value + (row or ""), value=str).to(
        "out", partitioner=lambda topic, key, value, partitions: 0
    )
    stream.to_extracted(lambda key, value, context: value)
    users = builder.table("users", key=str, value=str, store="users")
    cities = builder.table("cities", key=str, value=str, store="cities", offset_reset="latest")
    users.join_foreign_key(cities, lambda _, city: city, str.__add__, value=str, name="home").to_stream().to("homes")

    with pytest.raises(TopologyError) as error:
        supported.check(builder.build())

    whats = " ".join(problem.what for problem in error.value.problems)
    assert len(error.value.problems) == 6
    for part in (
        "the global table of 'rows'",
        "the pattern 'order-.*'",
        "has a partitioner of its own",
        "computes the names of its topics",
        "begin at the end of a topic",
        "the hop 'home-subscription-response-topic' leads back",
    ):
        assert part in whats
    assert all(problem.hint and problem.where for problem in error.value.problems)


def test_what_the_kernel_does_by_itself_is_not_refused() -> None:
    builder = StreamsBuilder()
    rows = (
        builder.stream("in", key=str, value=str)
        .repartition(partitioner=lambda *_: 0, name="spread")
        .to_table(store="r")
    )
    limit = Suppressed.until_time_limit(timedelta(seconds=1), BufferConfig.unbounded())
    rows.suppress(limit, name="limited").to_stream().to("out")

    supported.check(builder.build())


def test_options_of_the_pipeline_are_refused_too() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str).to("out")

    pipeline = Pipeline(
        name="p", topology=topology, idle_timeout=timedelta(minutes=1), max_task_idle=timedelta(seconds=1)
    )

    with pytest.raises(TopologyError) as error:
        supported.check(pipeline.plan(), pipeline)

    assert [problem.what.partition(":")[0] for problem in error.value.problems] == ["idle_timeout", "max_task_idle"]
