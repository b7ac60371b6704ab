"""Everything that is wrong with a topology is told at once, with the line and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deltaworks import KStream, StreamsBuilder, TopologyError


def problems(topology: Callable[[StreamsBuilder], object]) -> list[str]:
    builder = StreamsBuilder("orders")
    topology(builder)
    with pytest.raises(TopologyError) as error:
        builder.build()
    assert all(problem.hint for problem in error.value.problems)
    return [problem.what for problem in error.value.problems]


def words(builder: StreamsBuilder) -> KStream[str, str]:
    return builder.stream("words", key=str, value=str)


def test_all_problems_come_at_once_each_with_its_line() -> None:
    builder = StreamsBuilder("orders")
    stream = words(builder)
    stream.group_by_key().count()
    stream.map_values(lambda word: len(word)).to("lengths")
    stream.to_delta("no good")

    with pytest.raises(TopologyError) as error:
        builder.build()

    lines = str(error.value).splitlines()
    assert lines[0] == "3 problems in topology 'orders'"
    places = [problem.where for problem in error.value.problems]
    first = int(str(places[0]).split(":")[-1])
    assert [str(place).split("/")[-1] for place in places] == [f"test_checks.py:{first + n}" for n in range(3)]
    assert sum(line.startswith("    Hint: ") for line in lines) == 3


def test_names_are_state_so_a_store_needs_one() -> None:
    assert problems(lambda builder: words(builder).group_by_key().count()) == [
        "count has no name for its store; names are state, so they are not made up."
    ]


@pytest.mark.parametrize("store", ["__task__", "a/b", "ä"])
def test_the_name_of_a_store_is_one_that_every_system_takes(store: str) -> None:
    assert problems(lambda builder: words(builder).to_table(store=store)) == [
        f"'{store}' cannot be the name of a store."
    ]


def test_a_store_has_one_owner() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).group_by_key().count(store="counts")
        words(builder).to_table(store="counts")

    (what,) = problems(topology)
    assert what.startswith("two stores are named 'counts'; the first is at ")


def test_a_delta_table_has_one_writer_its_changelog_included() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).to_table(store="last").to_delta("words")
        words(builder).to_delta("Words_changelog")

    (what,) = problems(topology)
    assert what.startswith("Delta table 'Words_changelog' is also written at ")


def test_a_node_name_is_unique() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder).peek(print, name="look")
        words(builder).peek(print, name="look")

    (what,) = problems(topology)
    assert what.startswith("two operators are named 'look'; the first is at ")


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250])
def test_a_topic_name_is_one_that_kafka_takes(topic: str) -> None:
    assert problems(lambda builder: words(builder).to(topic)) == [f"'{topic}' cannot be the name of a topic."]


def test_a_topic_is_not_a_stream_and_a_table() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder)
        builder.table("words", key=str, value=str, store="last")

    (what,) = problems(topology)
    assert what.startswith("topic 'words' is read twice; the first time at ")


def test_a_topic_is_not_read_with_two_types() -> None:
    def topology(builder: StreamsBuilder) -> None:
        words(builder)
        builder.stream("words", key=str, value=int)

    (what,) = problems(topology)
    assert what.startswith("topic 'words' is read twice; the first time at ")


def test_an_empty_topology_does_nothing() -> None:
    assert problems(lambda builder: None) == ["nothing is read, so there is nothing to do."]
