"""What happens to a record that fails, and errors of building a topology."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltaworks import (
    DeadLetters,
    ErrorContext,
    FailedRecord,
    LeaseError,
    Pipeline,
    Response,
    StreamsBuilder,
    StreamsError,
    Topic,
    TopologyError,
)
from deltaworks.control import fence
from deltaworks.testing import TopologyTestDriver

Handler = Callable[[ErrorContext, FailedRecord, Exception], Response]


def topology(builder: StreamsBuilder) -> None:
    numbers = builder.stream("numbers", key=str, value=int)
    numbers.map_values(lambda number: 12 // number, value=int, name="divide").to("out")


def encoding(builder: StreamsBuilder) -> None:
    builder.stream("numbers", key=str, value=int).map_values(lambda _: "text", value=int).to("out")  # type: ignore[arg-type, return-value]


def driver_of(build: Callable[[StreamsBuilder], None] = topology, **settings: Any) -> TopologyTestDriver:
    return TopologyTestDriver(Pipeline(name="numbers", topology=build, **settings))


def results(driver: TopologyTestDriver) -> list[Any]:
    return driver.create_output_topic("out").read_values_to_list()


def test_continue_goes_on_after_any_failure() -> None:
    driver = driver_of(on_error="continue")
    numbers = driver.create_input_topic("numbers")
    numbers.pipe_input("ann", 0)
    numbers.pipe_raw(b"ann", b"no number")
    numbers.pipe_input("ann", 3)

    assert results(driver) == [4]


def test_continue_after_bytes_that_do_not_decode() -> None:
    driver = driver_of(deserialization_handler="continue")
    driver.create_input_topic("numbers").pipe_raw(b"ann", b"no number")
    driver.create_input_topic("numbers").pipe_input("ann", 3)

    assert results(driver) == [4]


def test_continue_after_a_function_that_raises() -> None:
    driver = driver_of(processing_handler="continue")
    driver.create_input_topic("numbers").pipe_value_list([0, 3])

    assert results(driver) == [4]


def test_continue_after_a_result_that_does_not_encode() -> None:
    driver = driver_of(encoding, production_handler="continue")
    driver.create_input_topic("numbers").pipe_input("ann", 3)

    assert len(driver.dead_letters) == 1


def test_a_failed_record_is_in_the_dead_letter_topic() -> None:
    driver = driver_of(on_error="continue", dead_letters=DeadLetters(topic="dead"))
    driver.create_input_topic("numbers").pipe_input("ann", 0)

    assert [record.key for record in driver.produced["dead"]] == [b"ann"]


def test_a_dead_letter_table_has_one_writer() -> None:
    def build(builder: StreamsBuilder) -> None:
        builder.stream("numbers", key=str, value=int).to_delta("numbers")

    with pytest.raises(TopologyError, match="the table of dead letters 'numbers'"):
        driver_of(build, dead_letters=DeadLetters(table="numbers"))


def handled(handler: Handler) -> TopologyTestDriver:
    """After a record that fails, and one that does not."""
    driver = driver_of(processing_handler=handler)
    numbers = driver.create_input_topic("numbers")
    numbers.pipe_input("ann", 0, timestamp_ms=5, headers=(("trace", b"x"),))
    numbers.pipe_input("ann", 3)
    return driver


def test_a_handler_may_go_on() -> None:
    assert results(handled(lambda *_: Response.resume())) == [4]


def test_a_handler_may_stop_the_stream() -> None:
    with pytest.raises(StreamsError, match="a record failed: ZeroDivisionError"):
        handled(lambda *_: Response.fail())


def test_a_handler_may_write_again() -> None:
    asked = []

    def again(*_: object) -> Response:
        asked.append(1)
        return Response.retry()

    with pytest.raises(StreamsError):
        driver_of(encoding, production_handler=again).create_input_topic("numbers").pipe_input("ann", 3)

    assert len(asked) > 1


def test_a_handler_may_write_dead_letters() -> None:
    driver = handled(lambda context, *_: Response.resume([context.dead_letter("dead")]))

    assert [record.key for record in driver.produced["dead"]] == [b"ann"]


def test_a_response_says_what_happens() -> None:
    assert Response.fail().action is not Response.resume().action


CONTEXT = {
    "kind": "processing",
    "topic": "numbers",
    "partition": 0,
    "offset": 0,
    "timestamp_ms": 5,
    "headers": (("trace", b"x"),),
    "operator": "divide",
    "task": 0,
    "source_raw_key": b"ann",
    "source_raw_value": (0).to_bytes(8),
}


@pytest.mark.parametrize("member", CONTEXT)
def test_a_handler_is_told(member: str) -> None:
    told = []

    def asked(context: ErrorContext, *_: object) -> Response:
        told.append(getattr(context, member))
        return Response.resume()

    handled(asked)

    assert told == [CONTEXT[member]]


def test_a_record_that_fails_stops_the_stream() -> None:
    with pytest.raises(StreamsError, match="divide"):
        driver_of().create_input_topic("numbers").pipe_input("ann", 0)


def test_a_topology_with_problems_is_not_built() -> None:
    builder = StreamsBuilder()
    builder.stream("numbers", key=str, value=int).group_by_key().count()
    builder.stream("words", key=str, value=str).group_by_key().count()

    with pytest.raises(TopologyError, match="2 problems"):
        builder.build()


def test_a_pipeline_declares_a_topic_once() -> None:
    with pytest.raises(TopologyError, match="'numbers' is declared twice"):
        driver_of(topics=(Topic("numbers"), Topic("numbers")))


def test_a_pipeline_has_one_driver() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generation"
        fence.advance(path, 1, "orders")
        with fence.held(path, 1, "orders"), pytest.raises(LeaseError, match="A process holds"):
            fence.advance(path, 2, "orders", patience_s=0.01)
