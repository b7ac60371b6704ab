"""Operators that ask another system: types, names, mistakes, and fakes of the test driver."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from deltaworks import Asking, CallOutError, ConfigurationError, Http, StreamsBuilder, StreamsError, TopologyError
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.nodes import CallOut


@dataclass
class Product:
    title: str


async def price(sku: str) -> int:
    raise AssertionError("a test asks nobody")


def pairs(key: str, value: str) -> tuple[str, int]:
    raise AssertionError("a test asks nobody")


def test_the_answer_is_the_new_value_and_its_type_is_that_of_the_function() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values_async(price, name="prices").to("out")
    driver = TopologyTestDriver(builder.build(), call_outs={"prices": len})

    driver.create_input_topic("in").pipe_key_value_list([("a", "xyz"), ("b", "x")])

    assert driver.create_output_topic("out", key=str, value=int).read_key_values_to_list() == [("a", 3), ("b", 1)]


def test_fakes_may_be_async_and_may_have_no_answer() -> None:
    async def fake(value: str) -> int | None:
        return None

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values_async(price, name="prices").to("out")
    driver = TopologyTestDriver(builder.build(), call_outs={"prices": fake})

    driver.create_input_topic("in").pipe_input("a", "xyz")

    assert driver.create_output_topic("out").read_key_value() == ("a", None)


def test_a_new_key_leads_to_an_exchange() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=str, value=str).map_async(pairs, name="pairs").group_by_key().count(store="c")
    counts.to_stream().to("out")
    plan = builder.build()
    driver = TopologyTestDriver(plan, call_outs={"pairs": lambda key, value: (value[0], len(value))})

    driver.create_input_topic("in").pipe_key_value_list([("a", "xyz"), ("b", "xx")])

    assert len(plan.stages) == 2
    assert driver.create_output_topic("out").read_key_values_to_list() == [("x", 1), ("x", 2)]


def test_enriching_joins_the_answer_to_the_value() -> None:
    products = Http(url="https://shop.example/{value}", answer=Product)
    builder = StreamsBuilder()
    joined = builder.stream("in", key=str, value=str).enrich_from(
        products, lambda value, product: f"{value}: {product.title if product else '?'}", name="products", value=str
    )
    joined.to("out")
    answers = {"a": Product("chair"), "b": None}
    driver = TopologyTestDriver(builder.build(), call_outs={"products": lambda key, value: answers[value]})

    driver.create_input_topic("in").pipe_key_value_list([("k", "a"), ("k", "b")])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("k", "a: chair"), ("k", "b: ?")]


def test_without_a_fake_a_test_asks_nobody() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values_async(price, name="prices").to("out")
    driver = TopologyTestDriver(builder.build(), errors=ErrorPolicy.of("continue"))

    with pytest.raises(ConfigurationError, match=r"'prices' asks another system.*\n.*call_outs=.'prices': function"):
        driver.create_input_topic("in").pipe_input("a", "xyz")
    assert driver.dead_letters == []


def test_a_fake_for_nobody_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values_async(price, name="prices").to("out")

    with pytest.raises(KeyError, match="no call-out 'price'; it has: prices"):
        TopologyTestDriver(builder.build(), call_outs={"price": len})


def test_a_call_that_fails_is_up_to_the_error_policy() -> None:
    def fail(value: str) -> int:
        raise LookupError(f"no {value}")

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).map_values_async(price, name="prices").to("out")
    plan = builder.build()
    driver = TopologyTestDriver(plan, errors=ErrorPolicy.of("continue"), call_outs={"prices": fail})
    driver.create_input_topic("in").pipe_input("a", "xyz")

    (letter,) = driver.dead_letters
    assert (letter.operator, letter.value) == ("prices", b"xyz")
    assert letter.error_class == "deltaworks.errors.CallOutError"
    assert letter.message == "'prices' has got no answer: LookupError: no xyz"
    failing = TopologyTestDriver(plan, call_outs={"prices": fail})
    with pytest.raises(StreamsError, match="LookupError: no xyz") as stopped:
        failing.create_input_topic("in").pipe_input("a", "xyz")
    assert isinstance(stopped.value.__cause__, CallOutError)


def test_an_answer_of_another_type_and_a_question_without_bytes_are_errors_of_the_record() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.map_values_async(price, name="prices").to("out")
    stream.map_values_async(price, name="odd", question=lambda _: object()).to("odd")
    driver = TopologyTestDriver(
        builder.build(), errors=ErrorPolicy.of("continue"), call_outs={"prices": str.upper, "odd": len}
    )

    driver.create_input_topic("in").pipe_input("a", "xyz")

    first, second = driver.dead_letters
    assert "SerializationError" in first.message
    assert "the question of 'odd' cannot be recorded: object has no lasting bytes; give question=" in second.message


def test_async_functions_are_known_whatever_wraps_them() -> None:
    class Client:
        async def __call__(self, sku: str) -> int:
            return 1

    async def of(table: str, sku: str) -> int:
        return 1

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    functions: list[Any] = [price, Client(), functools.partial(of, "t"), len]
    for number, function in enumerate(functions):
        stream.map_values_async(function, name=f"n{number}", value=int).to("out")

    nodes = [node for node in builder.build().nodes if isinstance(node, CallOut)]
    assert [node.is_async for node in nodes] == [True, True, True, False]


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda s: s.map_values_async(lambda v: v, name="n").to("out"), "needs the type of the value"),
        (lambda s: s.map_values_async(lambda a, b: 1, name="n", value=int), r"calls its mapper with \(value\)"),
        (lambda s: s.map_async(lambda v: v, name="n", key=str, value=int), r"calls its mapper with \(key, value\)"),
        (lambda s: s.map_values_async(price, name=None), "needs str, but got None"),
        (lambda s: s.map_values_async(price, name="n", asking=5), "needs Asking, but got 5"),
        (lambda s: s.enrich_from("https://h/", lambda v, a: v, name="n", value=str), "needs an Http"),
        (lambda s: s.enrich_from(Http(url="https://h/", answer=object), lambda v, a: v, name="n", value=str), "serde"),
    ],
)
def test_mistakes_are_told_with_the_line(call: Any, shown: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=shown) as refused:
        call(builder.stream("in", key=str, value=str))
        builder.build()
    assert "test_call_outs.py" in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": timedelta(0)}, {"retries": -1}, {"at_once": 0}, {"per_second": 0.0}, {"cache": -1},
        {"when_down": "stop"}, {"backoff": timedelta(-1)}, {"cache_for": timedelta(-1)}, {"max_backoff": timedelta(-1)},
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=rf"Asking\({next(iter(wrong))}="):
        Asking(**wrong)
