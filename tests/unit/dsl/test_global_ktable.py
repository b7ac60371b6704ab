"""Global tables: a stage of their own, rows for every task."""

from __future__ import annotations

import pytest

from deltaworks import StreamsBuilder, TopologyError
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.fingerprint import differences


def joined(topic: str = "cities") -> StreamsBuilder:
    builder = StreamsBuilder()
    cities = builder.global_table(topic, key=str, value=str, store="cities")
    orders = builder.stream("orders", key=str, value=str)
    with_country = orders.left_join(
        cities, lambda city, country: f"{city} {country}", selector=lambda _, city: city or None, value=str
    )
    with_country.to("out")
    return builder


def test_its_stage_gets_no_tasks() -> None:
    plan = joined().build()

    assert (plan.source_topics, plan.global_topics) == (("orders",), ("cities",))
    assert plan.tasks({"orders": 3}) == (3,)
    assert [store.name for stage in plan.global_stages for store in stage.stores] == ["cities"]
    assert plan.stores == ()


def test_rows_that_the_topology_writes_itself_are_there_for_the_next_record() -> None:
    builder = joined()
    builder.stream("moves", key=str, value=str).map_values(str.upper).to("cities")
    driver = TopologyTestDriver(builder.build())

    driver.create_input_topic("moves").pipe_input("Utrecht", "nl")
    for city in ("Utrecht", "Gouda", ""):
        driver.create_input_topic("orders").pipe_input("o", city)

    assert driver.create_output_topic("out").read_values_to_list() == ["Utrecht NL", "Gouda None", " None"]
    assert driver.store("cities").get("Utrecht") == "NL"


def test_its_store_needs_a_name_and_its_topic_no_other_reader() -> None:
    builder = StreamsBuilder()
    builder.global_table("cities", key=str, value=str)
    builder.stream("cities", key=str, value=str).to("out")

    with pytest.raises(TopologyError) as error:
        builder.build()

    assert [(problem.what.split(";")[0], problem.hint) for problem in error.value.problems] == [
        ("global_table has no name for its store", "global_table(..., store='...')"),
        (
            "topic 'cities' is read twice",
            "a global table has its topic to itself; keep it in a variable and join it twice",
        ),
    ]


def test_only_a_given_name_is_queryable() -> None:
    builder = StreamsBuilder(explicit_names="none")

    assert builder.global_table("a", key=str, value=str, store="rows").queryable_store_name == "rows"
    assert builder.global_table("b", key=str, value=str).queryable_store_name is None


def test_a_checkpoint_depends_on_its_topic() -> None:
    before, after = joined().build().fingerprint(), joined("towns").build().fingerprint()

    assert [str(difference).splitlines()[0] for difference in differences(before, after)] == [
        "global tables were read from the topics cities, are read from towns"
    ]
