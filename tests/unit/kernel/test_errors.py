"""Error handlers that users write: what they are told, and what their answers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltaworks import (
    DeadLetterRecord,
    ErrorContext,
    ErrorPolicy,
    FailedRecord,
    Pipeline,
    Response,
    StreamsBuilder,
    StreamsError,
    String,
)
from deltaworks.testing import TestRecord, TopologyTestDriver

Call = tuple[ErrorContext, FailedRecord, Exception]


class Handler:
    """Answers always the same and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[Call] = []

    def __call__(self, context: ErrorContext, record: FailedRecord, exception: Exception) -> Any:
        self.calls.append((context, record, exception))
        return self.answer(context) if callable(self.answer) else self.answer


def fail_on_bad(value: str) -> str:
    if value == "bad":
        raise ValueError("it is bad")
    return value


def checked(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).map_values(str.lower).map_values(fail_on_bad).to("out")


def driver(
    build: Callable[[StreamsBuilder], None], policy: ErrorPolicy, dead_letter_topic: str | None = "letters"
) -> TopologyTestDriver:
    builder = StreamsBuilder()
    build(builder)
    return TopologyTestDriver(builder.build(), errors=policy, dead_letter_topic=dead_letter_topic)


def test_handler_gets_the_record_as_it_came_to_the_operator() -> None:
    handler = Handler(Response.resume())
    under_test = driver(checked, ErrorPolicy(processing=handler))

    under_test.create_input_topic("in").pipe_input("a", "BAD", timestamp_ms=7, headers=(("h", b"v"),))

    ((context, record, exception),) = handler.calls
    assert record == FailedRecord("a", "bad", 7, (("h", b"v"),))
    assert (context.kind, context.operator, context.task) == ("processing", "KSTREAM-MAPVALUES-0000000002", 0)
    assert (context.topic, context.partition, context.offset) == ("in", 0, 0)
    assert (context.source_raw_key, context.source_raw_value) == (b"a", b"BAD")
    assert str(exception) == "it is bad"


def test_record_that_is_resumed_is_dropped_and_no_dead_letter_of_the_pipeline() -> None:
    under_test = driver(checked, ErrorPolicy(processing=Handler(Response.resume())))
    topic = under_test.create_input_topic("in")

    topic.pipe_key_value_list([("a", "bad"), ("b", "good")])

    assert under_test.create_output_topic("out").read_values_to_list() == ["good"]
    assert (under_test.metrics.dropped, under_test.metrics.dead_letters) == (1, 0)
    assert under_test.produced["letters"] == []


def test_handler_writes_dead_letters_of_its_own() -> None:
    own = DeadLetterRecord("own", b"k", b"v", 3)
    under_test = driver(
        checked, ErrorPolicy(processing=Handler(lambda context: Response.resume([own, context.dead_letter("bad")])))
    )

    under_test.create_input_topic("in").pipe_input("a", "BAD", timestamp_ms=7, headers=(("h", b"v"),))

    assert under_test.create_output_topic("own", key=String(), value=String()).read_record() == TestRecord("k", "v", 3)
    (letter,) = under_test.produced["bad"]
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"a", b"BAD", 7)
    assert letter.headers[0] == ("h", b"v")
    assert dict(letter.headers)["__streams.errors.message"] == b"it is bad"
    assert under_test.metrics.dead_letters == 2


def test_word_of_a_handler_is_the_word_of_the_policy() -> None:
    under_test = driver(checked, ErrorPolicy(processing=Handler("continue")))

    under_test.create_input_topic("in").pipe_input("a", "bad")

    assert [letter.value for letter in under_test.dead_letters] == [b"bad"]
    assert len(under_test.produced["letters"]) == 1


@pytest.mark.parametrize("answer", [Response.fail(), Response.retry(), "fail"])
def test_stream_stops_when_a_handler_says_so(answer: Any) -> None:
    under_test = driver(checked, ErrorPolicy(processing=Handler(answer)))

    with pytest.raises(StreamsError, match="a record failed: ValueError: it is bad"):
        under_test.create_input_topic("in").pipe_input("a", "bad")


def test_failure_that_stops_the_stream_leaves_its_dead_letter() -> None:
    under_test = driver(checked, ErrorPolicy())

    with pytest.raises(StreamsError):
        under_test.create_input_topic("in").pipe_input("a", "bad")

    assert [letter.value for letter in under_test.produced["letters"]] == [b"bad"]


def test_handler_that_raises_stops_the_stream_and_both_errors_are_told() -> None:
    def broken(context: ErrorContext, record: FailedRecord, exception: Exception) -> Response:
        raise KeyError("no rule")

    under_test = driver(checked, ErrorPolicy(processing=broken))

    with pytest.raises(StreamsError, match=r"error handler that failed \(KeyError: 'no rule'\): ValueError: it is bad"):
        under_test.create_input_topic("in").pipe_input("a", "bad")


def test_handler_that_answers_nothing_is_told_what_to_answer() -> None:
    under_test = driver(checked, ErrorPolicy(processing=Handler(None)))

    with pytest.raises(StreamsError, match="answers with a Response, 'fail' or 'continue', not with None"):
        under_test.create_input_topic("in").pipe_input("a", "bad")


def test_record_that_does_not_decode_comes_as_bytes() -> None:
    handler = Handler(Response.resume())

    def build(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int).to("out")

    under_test = driver(build, ErrorPolicy(deserialization=handler))
    under_test.create_input_topic("in").pipe_raw(b"a", b"xx", timestamp_ms=4)

    ((context, record, _),) = handler.calls
    assert record == FailedRecord(b"a", b"xx", 4, (), "in")
    assert context.kind == "deserialization"


def doubled(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).map_values(lambda value: value << 60, value=int).to("out")


def test_result_that_does_not_encode_comes_with_the_topic_it_was_for() -> None:
    handler = Handler(Response.resume())
    under_test = driver(doubled, ErrorPolicy(production=handler))

    under_test.create_input_topic("in").pipe_input("a", 99, timestamp_ms=4)

    ((context, record, _),) = handler.calls
    assert record == FailedRecord("a", 99 << 60, 4, (), "out")
    assert (context.kind, context.operator) == ("production", "KSTREAM-SINK-0000000002")


def test_write_is_tried_three_times_again_and_then_stops_the_stream() -> None:
    handler = Handler(Response.retry())
    under_test = driver(doubled, ErrorPolicy(production=handler))

    with pytest.raises(StreamsError, match="has a result that cannot be written"):
        under_test.create_input_topic("in").pipe_input("a", 99)

    assert len(handler.calls) == 4


class Flaky:
    """Text that cannot be written the first time."""

    name = "flaky"
    type = str

    def __init__(self) -> None:
        self.written = 0

    def serialize(self, value: str) -> bytes:
        self.written += 1
        if self.written == 1:
            raise OSError("the registry does not answer")
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


def test_write_that_succeeds_at_the_second_time_is_written_once() -> None:
    serde = Flaky()
    under_test = driver(
        lambda builder: builder.stream("in", key=str, value=str).to("out", value=serde),
        ErrorPolicy(production=Handler(Response.retry())),
    )

    under_test.create_input_topic("in", value=String()).pipe_input("a", "x")

    assert under_test.create_output_topic("out").read_values_to_list() == ["x"]
    assert under_test.metrics.dropped == 0


def test_pipeline_has_a_handler_per_kind_and_a_word_for_the_rest() -> None:
    handler = Handler(Response.resume())
    pipeline = Pipeline(name="p", topology=checked, on_error="continue", processing_handler=handler)

    assert pipeline.errors == ErrorPolicy(deserialization="continue", processing=handler, production="continue")
    under_test = TopologyTestDriver(pipeline)
    under_test.create_input_topic("in").pipe_input("a", "bad")
    assert len(handler.calls) == 1


def letters(
    build: Callable[[StreamsBuilder], None], value: str = "bad", *, keep_bytes: bool = False
) -> list[tuple[bytes | None, bytes | None]]:
    under_test = driver(build, ErrorPolicy.of("continue", keep_bytes=keep_bytes))
    under_test.create_input_topic("in").pipe_input("a", value)
    return [(letter.key, letter.value) for letter in under_test.produced["letters"]]


def test_dead_letter_is_empty_if_a_topic_has_taken_the_very_record_before() -> None:
    """A quirk of Kafka Streams: the bytes are let go of with the first write."""

    def sink_first(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=str)
        stream.to("copy")
        stream.map_values(fail_on_bad).to("out")

    def sink_last(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=str)
        stream.map_values(fail_on_bad).to("out")
        stream.to("copy")

    assert letters(sink_first) == [(None, None)]
    assert letters(sink_first, keep_bytes=True) == [(b"a", b"bad")]
    assert letters(sink_last) == [(b"a", b"bad")]


@pytest.mark.parametrize("made", [lambda s: s.filter(lambda *_: True), lambda s: s.map_values(lambda v: v, value=str)])
def test_dead_letter_is_whole_if_a_topic_has_taken_a_record_made_from_it(made: Callable[[Any], Any]) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=str)
        made(stream).to("copy")
        stream.map_values(fail_on_bad).to("out")

    assert letters(build) == [(b"a", b"bad")]


@pytest.mark.parametrize(
    "same",
    [
        lambda s: s.split("all").branch(lambda *_: True, name="yes").no_default_branch()["yes"],
        lambda s: s.merge(s.filter(lambda *_: False)),
    ],
    ids=["branch", "merge"],
)
def test_branch_and_merge_hand_on_the_very_record(same: Callable[[Any], Any]) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", key=str, value=str)
        same(stream).to("copy")
        stream.map_values(fail_on_bad).to("out")

    assert letters(build) == [(None, None)]
