"""What a stream does with null and empty values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from deltaworks import (
    ConsumedRecord,
    ErrorPolicy,
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    StreamsBuilder,
    StreamsError,
    TopologyError,
)
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded
from deltaworks.topology.nodes.sources import OnNull


class Order(msgspec.Struct, frozen=True):
    amount: int


class StreamTime(FixedKeyProcessor[str, Any, int]):
    def process(self, record: FixedKeyRecord[str, Any]) -> None:
        self.context.forward(record.with_value(self.context.current_stream_time_ms))


VALUES: Sequence[bytes | None] = [b'{"amount":1}', None, b"", b"no order", b'{"amount":2}']
"""The timestamps are 10, 20 and so on."""


def run(builder: StreamsBuilder, values: Sequence[bytes | None] = VALUES) -> Recording:
    count = len(values)
    times = [10 * number for number in range(1, count + 1)]
    batch = RecordBatch("orders", 0, list(range(count)), times, [b"k"] * count, list(values))
    return run_recorded(builder.build(), {"orders": 1}, [MicroBatch(0, (batch,))], errors=ErrorPolicy("continue"))


def orders(builder: StreamsBuilder, on_null: OnNull, **reads: Any) -> KStream[str, Order]:
    return builder.stream("orders", key=str, value=Order, on_null=on_null, **reads)


def counters(recording: Recording) -> tuple[int, int]:
    """Records dropped, and dead letters."""
    letters = sum(len(task.dead_letters) for task in recording.tasks.values())
    return sum(task.dropped for batch in recording.metrics for task in batch.values()), letters


@pytest.mark.parametrize(
    ("on_null", "values", "dead"),
    [
        ("forward", [b'{"amount":1}', None, b'{"amount":2}'], [2, 3]),
        ("skip", [b'{"amount":1}', b'{"amount":2}'], [2, 3]),
        ("skip_empty", [b'{"amount":1}', b'{"amount":2}'], [3]),
    ],
)
def test_what_is_skipped_is_dropped_and_the_rest_goes_to_the_error_policy(
    on_null: OnNull, values: list[bytes | None], dead: list[int]
) -> None:
    builder = StreamsBuilder()
    orders(builder, on_null).to("out")

    recording = run(builder)

    assert [record.value for record in recording.topic("out")] == values
    letters = [letter for task in recording.tasks.values() for letter in task.dead_letters]
    assert [letter.source.offset for letter in letters] == dead
    assert [letter.value for letter in letters] == [VALUES[offset] for offset in dead]
    assert counters(recording) == (len(VALUES) - len(values), len(dead))


def test_an_empty_value_that_the_type_allows_is_kept_unless_it_is_to_be_skipped() -> None:
    for on_null, kept in (("forward", [b"", None, b"a"]), ("skip", [b"", b"a"]), ("skip_empty", [b"a"])):
        builder = StreamsBuilder()
        builder.stream("orders", key=str, value=str, on_null=on_null).to("out")  # type: ignore[arg-type]

        assert [record.value for record in run(builder, [b"", None, b"a"]).topic("out")] == kept


@pytest.mark.parametrize("values", [[None], [b'{"amount":1}', None, b'{"amount":2}'], [None, None, b'{"amount":2}']])
def test_a_stream_that_skips_is_one_with_a_filter(values: list[bytes | None]) -> None:
    skipping, filtering = StreamsBuilder(), StreamsBuilder()
    orders(skipping, "skip").process_values(StreamTime, name="time").to("out")
    forwarded = orders(filtering, "forward").filter(lambda _, order: order is not None)
    forwarded.process_values(StreamTime, name="time").to("out")

    skipped, filtered = run(skipping, values), run(filtering, values)

    assert skipped.topic("out") == filtered.topic("out")
    assert [task.stream_time_ms for task in skipped.metrics[0].values()] == [10 * len(values)]


def test_a_timestamp_extractor_is_not_asked_about_what_is_skipped() -> None:
    def amount(record: ConsumedRecord, _: int) -> int:
        return int(record.value.amount)

    builder, asking = StreamsBuilder(), StreamsBuilder()
    orders(builder, "skip", timestamp_extractor=amount).to("out")
    orders(asking, "forward", timestamp_extractor=amount).to("out")
    values = [b'{"amount":7}', None, b'{"amount":5}']

    recording = run(builder, values)

    assert [record.timestamp_ms for record in recording.topic("out")] == [7, 5]
    assert counters(recording) == (1, 0)
    with pytest.raises(StreamsError, match="a timestamp extractor failed"):
        run(asking, values)


def test_a_key_that_does_not_decode_is_an_error_whatever_its_value() -> None:
    builder = StreamsBuilder()
    orders(builder, "skip").to("out")
    batch = RecordBatch("orders", 0, [0], [1], [b"\xff"], [None])

    recording = run_recorded(builder.build(), {"orders": 1}, [MicroBatch(0, (batch,))], errors=ErrorPolicy("continue"))

    assert counters(recording) == (1, 1)


def test_skipping_is_part_of_the_source_and_does_not_show_in_a_description() -> None:
    skipping, forwarding = StreamsBuilder(), StreamsBuilder()
    orders(skipping, "skip").to("out")
    orders(forwarding, "forward").to("out")

    assert skipping.build().describe() == forwarding.build().describe()
    assert skipping.build().fingerprint() == forwarding.build().fingerprint()


def test_a_topic_is_read_in_one_way() -> None:
    builder = StreamsBuilder()
    orders(builder, "skip").to("a")
    orders(builder, "skip").to("b")
    assert len(builder.build().stages[0].sources) == 1

    orders(builder, "forward").to("c")
    with pytest.raises(TopologyError, match="one on_null="):
        builder.build()


def test_another_text_is_refused_with_those_that_are_valid() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=Order, on_null="drop").to("out")  # type: ignore[arg-type]

    with pytest.raises(TopologyError, match="on_null is 'forward', 'skip' or 'skip_empty', not 'drop'") as error:
        builder.build()
    assert "test_on_null.py:" in str(error.value)


def test_the_driver_counts_what_is_skipped() -> None:
    builder = StreamsBuilder()
    orders(builder, "skip_empty").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for value in (None, b"", b'{"amount":1}'):
            driver.create_input_topic("orders").pipe_raw(b"k", value)

        assert driver.create_output_topic("out").read_values_to_list() == [Order(1)]
        assert driver.metrics.dropped == 2
