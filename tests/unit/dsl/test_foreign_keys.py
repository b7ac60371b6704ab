from __future__ import annotations

from typing import assert_type

import pytest

from deltaworks import KTable, Plan, StreamsBuilder, TopologyError
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.testing import TopologyTestDriver


def city_of(_: str, user: str) -> str | None:
    return user.split("@")[1] if "@" in user else None


def tables(builder: StreamsBuilder) -> tuple[KTable[str, str], KTable[str, int]]:
    users = builder.table("users", key=str, value=str, store="users")
    cities = builder.table("cities", key=str, value=int, store="cities")
    return users, cities


def joined(*, left: bool = False) -> Plan:
    builder = StreamsBuilder()
    users, cities = tables(builder)
    if left:
        outer = users.left_join(
            cities, lambda user, size: f"{user}:{size}", foreign_key=city_of, value=str, name="home"
        )
        outer.to_stream().to("homes")
    else:
        inner = users.join(cities, lambda user, size: f"{user}:{size}", foreign_key=city_of, value=str, name="home")
        inner.to_stream().to("homes")
    return builder.build()


def test_types_of_both_tables_meet_in_the_joiner() -> None:
    builder = StreamsBuilder()
    users, cities = tables(builder)

    def size(user: str, city: int) -> float:
        return city / len(user)

    result = users.join(cities, size, foreign_key=city_of, name="home")

    assert_type(result, KTable[str, float])
    users.join(cities, size, foreign_key=lambda _, user: len(user), name="b")  # type: ignore[arg-type,return-value]
    users.left_join(cities, size, foreign_key=city_of, name="c")  # type: ignore[arg-type]


def test_its_nodes_and_its_store_are_named_after_the_join() -> None:
    plan = joined()

    assert {store.name for store in plan.stores} == {"users", "cities", "home-subscription-store"}
    assert plan.loops == ("home-subscription-response-topic",)
    assert {node.name for node in plan.nodes if node.name.startswith("home")} == {
        "home-subscription-registration-processor",
        "home-subscription-registration-sink",
        "home-subscription-registration-source",
        "home-subscription-receive",
        "home-subscription-join-foreign",
        "home-foreign-join-subscription",
        "home-subscription-response-sink",
        "home-subscription-response-source",
        "home-subscription-response-resolver",
        "home-result",
    }


def test_without_a_name_its_subscriptions_have_none() -> None:
    builder = StreamsBuilder()
    users, cities = tables(builder)
    users.join(cities, lambda user, size: user, foreign_key=city_of, value=str).to_stream().to("out")

    with pytest.raises(TopologyError) as error:
        builder.build()

    (problem,) = error.value.problems
    assert problem.what.startswith("join has no name for the store of its subscriptions;")
    assert problem.hint == "join(..., name='...')"


def test_a_row_without_a_foreign_key_joins_nothing_and_an_inner_join_counts_it_as_dropped() -> None:
    for left, expected in ((False, []), (True, [("ann", "ann:None")])):
        driver = TopologyTestDriver(joined(left=left))

        driver.create_input_topic("users").pipe_input("ann", "ann")

        assert driver.create_output_topic("homes").read_key_values_to_list() == expected
        assert driver.metrics.dropped == (0 if left else 1)


def test_a_foreign_key_that_cannot_be_computed_fails_at_the_join() -> None:
    builder = StreamsBuilder()
    users, cities = tables(builder)
    users.join(cities, lambda user, _: user, foreign_key=lambda _, user: user.split("@")[1], value=str, name="home")
    driver = TopologyTestDriver(builder.build(), errors=ErrorPolicy.of("continue"))

    driver.create_input_topic("users").pipe_input("ann", "ann")

    (letter,) = driver.dead_letters
    assert letter.operator == "home-subscription-registration-processor"
    assert letter.error_class == "IndexError"


def test_tables_of_two_builders_do_not_join() -> None:
    builder = StreamsBuilder()
    users, _ = tables(builder)
    _, cities = tables(StreamsBuilder())
    users.join(cities, lambda user, _: user, foreign_key=city_of, value=str, name="home").to_stream().to("out")

    with pytest.raises(TopologyError, match="the other table belongs to another builder"):
        builder.build()
