"""Whatever a topology's function raises becomes an error with the author's line and what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Materialized, Pipeline, Plan, Stores, Topology, TopologyError
from deltaworks.dsl import kafka_names
from deltaworks.testing import TopologyTestDriver

FILE = str(Path(__file__)).removeprefix(f"{Path.cwd()}/")


def misspelled(builder: Any) -> None:
    builder.strem("orders", key=str, value=str)  # here


def in_camel_case(builder: Any) -> None:
    builder.stream("orders", key=str, value=str).mapvalues(str.upper)  # here


def unknown_name(builder: Any) -> None:
    builder.stream("orders", key=str, value=strr)  # type: ignore[name-defined]  # noqa: F821  # here


def unknown_argument(builder: Any) -> None:
    builder.stream("orders", key=str, values=str)  # here


def missing_argument(builder: Any) -> None:
    builder.stream("orders")  # here


def too_many_arguments(builder: Any) -> None:
    builder.stream("orders", key=str, value=str).filter(lambda k, v: True, 1, 2)  # here


def class_of_kafka_streams(builder: Any) -> None:
    from deltaworks import Consumed  # type: ignore[attr-defined]  # noqa: F401  # here


def name_of_a_store(builder: Any) -> None:
    stores: Any = Stores
    stores.keyValueStoreBuilder(None)  # here


def details_of_a_store(builder: Any) -> None:
    materialized: Any = Materialized
    materialized.as_("counts")  # here


def in_a_helper(builder: Any) -> None:
    helper({})


def helper(settings: dict[str, str]) -> None:
    settings["topic"]  # here


def in_the_standard_library(builder: Any) -> None:
    Path("/nowhere/at/all").read_text()  # here


def wrong_value(builder: Any) -> None:
    orders = builder.stream("orders", key=str, value=str)
    orders.group_by_key().count(store=Materialized("a", retention=5))  # type: ignore[arg-type]  # here


def text_method(builder: Any) -> None:
    "orders".uper()  # type: ignore[attr-defined]  # here


CASES: dict[Callable[..., Any], tuple[str, str | None]] = {
    misspelled: ("StreamsBuilder has no operator 'strem'.", "stream(...)"),
    in_camel_case: ("KStream has no operator 'mapvalues'.", "map_values(...)"),
    unknown_name: ("NameError: name 'strr' is not defined.", "Did you mean: 'str'?"),
    text_method: ("AttributeError: 'str' object has no attribute 'uper'.", "Did you mean: 'upper'?"),
    unknown_argument: (
        "TypeError: StreamsBuilder.stream() got an unexpected keyword argument 'values'.",
        "value=...",
    ),
    missing_argument: (
        "TypeError: StreamsBuilder.stream() missing 2 required keyword-only arguments: 'key' and 'value'.",
        "stream(topics, key=..., value=...)",
    ),
    too_many_arguments: (
        "TypeError: KStream.filter() takes 2 positional arguments but 4 were given.",
        "filter(predicate)",
    ),
    class_of_kafka_streams: (
        f"ImportError: deltaworks has no 'Consumed'. Use instead: {kafka_names.INSTEAD['Consumed']}.",
        None,
    ),
    name_of_a_store: ("Stores has no method 'keyValueStoreBuilder'.", "Stores.key_value('name', key=str, value=int)"),
    details_of_a_store: ("Materialized has no method 'as_'.", "store='name', or Materialized('name', ...)"),
    in_a_helper: ("KeyError: topic.", None),
    in_the_standard_library: (
        "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all'.",
        None,
    ),
    wrong_value: (
        "TypeError: the retention of a store must be a timedelta, such as timedelta(milliseconds=5), not 5.",
        None,
    ),
}


def plan_of(pipeline: Pipeline) -> Plan:
    return pipeline.plan()


@pytest.mark.parametrize("run", [plan_of, TopologyTestDriver])
@pytest.mark.parametrize("topology", CASES, ids=lambda each: each.__name__)
def test_a_failure_is_told_with_its_line_and_what_to_write(topology: Any, run: Callable[[Pipeline], Any]) -> None:
    what, hint = CASES[topology]
    with pytest.raises(TopologyError) as error:
        run(Pipeline(name="orders", topology=topology))

    (problem,) = error.value.problems
    assert (problem.what, problem.where, problem.hint) == (what, here(topology), hint)
    assert isinstance(error.value.__cause__, Exception)


def here(function: Callable[..., Any]) -> str:
    if function is in_a_helper:
        function = helper
    lines, first = inspect.getsourcelines(function)
    (line,) = (first + number for number, text in enumerate(lines) if text.rstrip().endswith("# here"))
    return f"{FILE}:{line}"


def test_what_was_wrong_before_is_told_too() -> None:
    def topology(builder: Any) -> None:
        orders = builder.stream("orders", key=str, value=str)
        orders.filter(lambda order: True)
        orders.tto("out")

    with pytest.raises(TopologyError) as error:
        Pipeline(name="orders", topology=topology).plan()

    before, last = error.value.problems
    assert before.what.startswith("filter calls its predicate with (key, value), but got a lambda")
    assert (last.what, last.hint) == ("KStream has no operator 'tto'.", "to(...)")


def test_a_function_that_makes_a_low_level_topology_is_told_too() -> None:
    def topology() -> Topology:
        low_level: Any = Topology()
        low_level.addsource("in")
        return Topology()

    with pytest.raises(TopologyError, match=r"Topology has no operator 'addsource'\.\n    at .*\n    Hint: add_source"):
        Pipeline(name="orders", topology=topology).plan()
