"""A pipeline is a topology with a name and how it runs; its plan is checked as a whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import DeadLetters, EmitStrategy, Pipeline, StreamsBuilder, TimeWindows, Topic, Topology, TopologyError
from deltaworks.topology.nodes import WindowAggregate


def topology(builder: StreamsBuilder) -> None:
    builder.table("users", key=str, value=str, store="users").to_delta("users")


def test_a_plan_can_be_built_again() -> None:
    pipeline = Pipeline(name="users", topology=topology)

    assert pipeline.plan() == pipeline.plan()
    assert pipeline.plan().name == "users"


def test_the_record_cache_is_a_setting_of_the_pipeline() -> None:
    assert [store.cached for store in Pipeline(name="users", topology=topology).plan().stores] == [True]
    assert [store.cached for store in Pipeline(name="users", topology=topology, record_cache=False).plan().stores] == [
        False
    ]


def unnamed(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str)
    counts = words.group_by_key().windowed_by(TimeWindows(size=timedelta(seconds=1), grace=timedelta(0)))
    counts.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_delta("counts")
    words.select_key(lambda _, word: word, key=str).repartition(name="by-word").group_by_key().count().to_delta("a")


def test_what_a_builder_takes_is_a_setting_of_the_pipeline() -> None:
    with pytest.raises(TopologyError, match="has no name for its store"):
        Pipeline(name="words", topology=unnamed).plan()

    plan = Pipeline(name="words", topology=unnamed, explicit_names="none", emit_interval=timedelta(seconds=2)).plan()

    (windowed,) = (node for node in plan.nodes if isinstance(node, WindowAggregate))
    assert windowed.emit_interval_ms == 2_000


def low_level() -> Topology:
    topology = Topology()
    topology.add_source("words", "words", key=str, value=str)
    return topology.add_sink("copies", "copies", "words", key=str, value=str)


def test_a_function_without_parameters_returns_a_low_level_topology() -> None:
    plan = Pipeline(name="copies", topology=low_level).plan()

    assert (plan.name, plan.source_topics, plan.sink_topics) == ("copies", ("words",), ("copies",))
    with pytest.raises(TopologyError, match="a function without parameters that returns a Plan"):
        Pipeline(name="copies", topology=lambda: low_level().build()).plan()  # type: ignore[arg-type]


@pytest.mark.parametrize(("wanted", "given", "shards"), [(None, 4, 4), (1, 4, 1), (8, 4, 4)])
def test_a_pipeline_takes_no_more_shards_than_it_wants_or_is_given(wanted: int | None, given: int, shards: int) -> None:
    assert Pipeline(name="users", topology=topology, cores=wanted).shards(given) == shards


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"name": "a b"}, "'a b' cannot be the name of a pipeline."),
        ({"dead_letters": DeadLetters(table="../letters")}, "'../letters' cannot be the name of a Delta table."),
        ({"dead_letters": DeadLetters(table="users_changelog")}, "'users_changelog' is also written by the topology"),
        ({"dead_letters": DeadLetters(topic="users")}, "'users' is read by the topology"),
        ({"dead_letters": DeadLetters(topic="a b")}, "'a b' cannot be the name of a topic."),
        ({"dead_letters": "letters"}, "dead_letters= is 'letters', not DeadLetters."),
        ({"topics": (Topic("users"), Topic("users", partitions=1))}, "topic 'users' is declared twice."),
        ({"topics": (Topic("users", partitions=0),)}, "topic 'users' has partitions=0 and replication=None."),
        ({"topics": (Topic("users", replication=0),)}, "topic 'users' has partitions=4 and replication=0."),
        (
            {"topics": (Topic("users", config={"retention.ms": 60_000}),)},  # type: ignore[dict-item]
            "topic 'users': config has 'retention.ms': 60000, but settings of Kafka are text.",
        ),
        ({"trigger_interval": timedelta(seconds=-1)}, "trigger_interval is negative."),
        ({"max_trigger_interval": timedelta(seconds=-1)}, "max_trigger_interval is negative."),
        ({"cores": 0}, "cores is less than one."),
    ],
)
def test_a_setting_that_does_not_fit_the_topology_is_told(settings: dict[str, Any], what: str) -> None:
    pipeline = replace(Pipeline(name="users", topology=topology), **settings)

    with pytest.raises(TopologyError) as error:
        pipeline.plan()

    (problem,) = error.value.problems
    assert what in problem.what
    assert problem.hint


@pytest.mark.parametrize(
    ("gone", "hint"),
    [
        ({"dead_letter_topic": "letters"}, "dead_letters=DeadLetters(topic='letters')"),
        ({"dead_letter_table": "letters"}, "dead_letters=DeadLetters(table='letters')"),
        ({"dead_letters_keep_bytes": True}, "dead_letters=DeadLetters(keep_bytes=True)"),
    ],
)
def test_an_argument_of_an_earlier_version_is_refused_with_a_hint(gone: dict[str, Any], hint: str) -> None:
    with pytest.raises(TypeError) as error:
        Pipeline(name="users", topology=topology, **gone)

    what, where, how = str(error.value).splitlines()
    assert what == f"Pipeline has no argument '{next(iter(gone))}'."
    assert "test_pipeline.py:" in where
    assert how == f"    Hint: {hint}"


def test_problems_of_the_topology_carry_the_name_of_the_pipeline() -> None:
    pipeline = Pipeline(name="empty", topology=lambda builder: None)

    with pytest.raises(TopologyError, match="1 problem in topology 'empty'"):
        pipeline.plan()
