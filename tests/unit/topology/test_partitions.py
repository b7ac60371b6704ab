"""How many tasks there are, and which topics must have as many partitions as others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from deltaworks import JoinWindows, KStream, Plan, StreamsBuilder, TopologyError


def join(*, rekeyed: bool, partitions: int | None = None) -> Plan:
    builder = StreamsBuilder("orders")
    users = builder.table("users", key=str, value=str, store="users")
    orders: KStream[str, str] = builder.stream("orders", key=str, value=str)
    if rekeyed:
        orders = orders.select_key(lambda _, value: value, key=str)
    if partitions:
        orders = orders.repartition(partitions=partitions, name="spread")
    orders.join(users, str.__add__, value=str, name="enrich").to("out")
    return builder.build()


def test_a_stage_has_as_many_tasks_as_its_widest_topic_has_partitions() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key=str, value=str).merge(builder.stream("b", key=str, value=str)).to("out")

    assert builder.build().tasks({"a": 3, "b": 5}) == (5,)


def test_joined_topics_must_have_as_many_partitions() -> None:
    with pytest.raises(TopologyError) as error:
        join(rekeyed=False).tasks({"orders": 4, "users": 6})

    title, what, where, hint = str(error.value).splitlines()
    assert title == "1 problem in topology 'orders'"
    assert what.split(": ") == [
        "  'enrich' (stream-table join)",
        "'orders' has 4 partitions, 'users' has 6 partitions; joined topics must be co-partitioned.",
    ]
    assert where.startswith("    at ")
    assert "test_partitions.py:" in where
    assert hint == "    Hint: repartition(partitions=6) the stream before the join"


def test_an_exchange_to_a_join_takes_the_width_of_the_table() -> None:
    plan = join(rekeyed=True)

    assert plan.tasks({"orders": 4, "users": 6}) == (4, 6)
    assert plan.exchange_partitions({"orders": 4, "users": 6}) == {"enrich-repartition": 6}


def test_an_explicit_width_must_fit_the_join() -> None:
    plan = join(rekeyed=True, partitions=6)

    assert plan.tasks({"orders": 4, "users": 6}) == (4, 6)
    with pytest.raises(TopologyError, match="'spread-repartition' has 6 partitions, 'users' has 1 partition;"):
        plan.tasks({"orders": 4, "users": 1})


def stream_join(*, left: bool, right: bool) -> Plan:
    """A join of two streams, either of which may have new keys."""
    builder = StreamsBuilder("clicks")
    clicks, views = builder.stream("clicks", key=str, value=str), builder.stream("views", key=str, value=str)
    if left:
        clicks = clicks.select_key(lambda _, value: value, key=str)
    if right:
        views = views.select_key(lambda _, value: value, key=str)
    windows = JoinWindows(difference=timedelta(seconds=1), grace=timedelta(0))
    clicks.join(views, str.__add__, windows, value=str, store="pairs", name="pair").to("out")
    return builder.build()


def test_an_exchange_to_a_join_of_streams_takes_the_width_of_the_other_side() -> None:
    plan = stream_join(left=True, right=False)

    assert plan.exchange_partitions({"clicks": 2, "views": 3}) == {"pair-left-repartition": 3}


def test_two_exchanges_to_a_join_are_as_wide_as_the_wider_stage_before_them() -> None:
    plan = stream_join(left=True, right=True)

    widths = plan.exchange_partitions({"clicks": 2, "views": 3})

    assert widths == {"pair-left-repartition": 3, "pair-right-repartition": 3}


def test_streams_that_join_must_have_as_many_partitions() -> None:
    with pytest.raises(TopologyError, match=r"\(stream-stream join\): 'clicks' has 2 partitions, 'views' has 3"):
        stream_join(left=False, right=False).tasks({"clicks": 2, "views": 3})


def test_an_exchange_is_as_wide_as_the_stage_before_it() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    words.group_by(lambda _, word: word, key=str).count(store="counts").to_stream().to("out")

    plan = builder.build()

    assert plan.tasks({"words": 7}) == (7, 7)
    assert plan.exchange_partitions({"words": 7}) == {"counts-repartition": 7}


def test_a_topic_that_does_not_exist_is_named() -> None:
    with pytest.raises(TopologyError, match="topic 'users' has no partitions: it does not exist"):
        join(rekeyed=False).tasks({"orders": 4})


def test_a_foreign_key_join_needs_no_co_partitioning_and_its_exchanges_are_as_wide_as_the_tables() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=str, store="orders")
    users = builder.table("users", key=str, value=str, store="users")
    orders.join(users, str.__add__, foreign_key=lambda _, user: user, value=str, name="join").to_stream().to("out")

    plan = builder.build()

    assert plan.tasks({"orders": 2, "users": 5}) == (2, 5)
    assert plan.exchange_partitions({"orders": 2, "users": 5}) == {
        "join-subscription-registration-topic": 5,
        "join-subscription-response-topic": 2,
    }


def test_the_way_back_of_a_foreign_key_join_is_as_wide_as_the_exchange_that_fills_the_left_table() -> None:
    builder = StreamsBuilder()
    latest = (
        builder.stream("orders", key=str, value=str).repartition(partitions=3, name="by-id").to_table(store="orders")
    )
    users = builder.table("users", key=str, value=str, store="users")
    latest.join(users, str.__add__, foreign_key=lambda _, user: user, value=str, name="join").to_stream().to("out")

    plan = builder.build()

    assert plan.exchange_partitions({"orders": 2, "users": 5})["join-subscription-response-topic"] == 3


def test_joined_tables_must_have_as_many_partitions() -> None:
    builder = StreamsBuilder("rows")
    left, right = (builder.table(topic, key=str, value=str, store=topic) for topic in ("left", "right"))
    left.join(right, str.__add__, value=str, name="both").to_stream().to("out")

    with pytest.raises(TopologyError) as error:
        builder.build().tasks({"left": 2, "right": 3})

    (problem,) = error.value.problems
    assert problem.what.startswith("'both-join-this' (table-table join): 'left' has 2 partitions, 'right' has 3")
