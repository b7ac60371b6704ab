"""Sources by pattern, and where a record's time comes from."""

from __future__ import annotations

from typing import Any

import pytest

from deltaworks import (
    ConsumedRecord,
    FailOnInvalidTimestamp,
    Json,
    LogAndSkipOnInvalidTimestamp,
    StreamsBuilder,
    StreamsError,
    TimestampExtractor,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from deltaworks.kernel.records import RecordBatch
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, run_recorded


def times(extractor: TimestampExtractor, *timestamps_ms: int, wall_clock_ms: int = 0) -> list[int]:
    """What becomes of records with these timestamps, each in a micro-batch of its own on a rebuilt task."""
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str, timestamp_extractor=extractor).to("out")
    batches = [
        MicroBatch(wall_clock_ms, (RecordBatch("in", 0, [offset], [timestamp_ms], [None], [b"v"]),))
        for offset, timestamp_ms in enumerate(timestamps_ms)
    ]
    recording = run_recorded(builder.build(), {"in": 1}, batches, restarts=lambda batch_id, task: True)
    return [record.timestamp_ms for record in recording.topic("out")]


def test_extractor_sees_the_record_and_the_time_of_its_partition() -> None:
    seen: list[tuple[ConsumedRecord, int]] = []

    def extractor(record: ConsumedRecord, partition_time_ms: int) -> int:
        seen.append((record, partition_time_ms))
        return record.timestamp_ms + 100

    assert times(extractor, 5, 3, wall_clock_ms=9) == [105, 103]
    assert seen == [
        (ConsumedRecord(None, "v", 5, (), "in", 0, 0, 9), -1),
        (ConsumedRecord(None, "v", 3, (), "in", 0, 1, 9), 105),
    ]


def test_partition_time_goes_on_from_record_to_record() -> None:
    builder = StreamsBuilder()
    extractor = UsePartitionTimeOnInvalidTimestamp()
    builder.stream("in", key=str, value=str, timestamp_extractor=extractor).to("out")
    records = RecordBatch("in", 0, [0, 1, 2], [5, 3, -1], [None] * 3, [b"v"] * 3)

    recording = run_recorded(builder.build(), {"in": 1}, [MicroBatch(0, (records,))])

    assert [record.timestamp_ms for record in recording.topic("out")] == [5, 3, 5]


def test_partition_time_is_remembered_across_restarts() -> None:
    assert times(UsePartitionTimeOnInvalidTimestamp(), 5, 3, -1) == [5, 3, 5]


def test_record_without_a_valid_time_is_skipped() -> None:
    assert times(LogAndSkipOnInvalidTimestamp(), -1, 4) == [4]


def test_wall_clock_is_that_of_the_micro_batch() -> None:
    assert times(WallclockTimestampExtractor(), 5, wall_clock_ms=70) == [70]


@pytest.mark.parametrize(
    ("extractor", "message"),
    [
        (FailOnInvalidTimestamp(), "the timestamp -1 is negative"),
        (UsePartitionTimeOnInvalidTimestamp(), "has no valid timestamp, and neither has any record before it"),
        (lambda record, _: record.value["time"], "a timestamp extractor failed: TypeError"),
    ],
)
def test_extractor_that_has_no_answer_stops_the_stream(extractor: TimestampExtractor, message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        times(extractor, -1)


def test_the_extractor_that_every_source_has_costs_nothing() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str, timestamp_extractor=FailOnInvalidTimestamp()).to("out")

    assert builder.build().stages[0].sources[0].timestamp_extractor is None


def test_extracted_times_decide_which_topic_goes_first() -> None:
    builder = StreamsBuilder()
    table = builder.table(
        "rows",
        key=str,
        value=Json(dict[str, int]),
        store="rows",
        timestamp_extractor=lambda record, _: record.value["at"],
    )
    stream = builder.stream("in", key=str, value=str)
    stream.left_join(table, lambda value, row: f"{value} {row and row['at']}", value=str).to("out")
    batch = MicroBatch(
        0,
        (
            RecordBatch("in", 0, [0, 1], [10, 30], [b"k", b"k"], [b"a", b"b"]),
            RecordBatch("rows", 0, [0], [0], [b"k"], [b'{"at": 20}']),
        ),
    )

    recording = run_recorded(builder.build(), {"in": 1, "rows": 1}, [batch])

    assert [record.value for record in recording.topic("out")] == [b"a None", b"b 20"]


def sensors(**options: Any) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream(pattern="sensor-.*", key=str, value=str, **options).to("out")
    return builder


def test_pattern_reads_the_topics_that_it_matches_completely() -> None:
    driver = TopologyTestDriver(sensors().build())
    driver.create_input_topic("sensor-1").pipe_input("k", "a")
    driver.create_input_topic("sensor-22").pipe_input("k", "b")

    assert driver.create_output_topic("out").read_values_to_list() == ["a", "b"]
    with pytest.raises(KeyError, match=r"has no input topic 'a-sensor-1'; it has: sensor-\.\*"):
        driver.create_input_topic("a-sensor-1")


def test_stage_has_as_many_tasks_as_the_widest_topic_of_its_pattern() -> None:
    assert sensors().build().tasks({"sensor-1": 2, "sensor-2": 3, "other": 9}) == (3,)


def test_same_pattern_is_the_same_stream() -> None:
    builder = sensors()
    builder.stream(pattern="sensor-.*", key=str, value=str).to("out2")

    assert [stage.patterns for stage in builder.build().stages] == [("sensor-.*",)]


def test_topic_has_one_source_and_a_pattern_is_a_regular_expression() -> None:
    builder = sensors()
    builder.stream("sensor-1", key=str, value=str).to("out1")
    builder.stream("x", pattern="sensor-(", key=str, value=str).to("out2")

    with pytest.raises(TopologyError) as caught:
        builder.build()

    text = str(caught.value)
    assert "and by the pattern 'sensor-.*' too" in text
    assert "the pattern 'sensor-(' is not a regular expression" in text
    assert "stream has both topic names and a pattern" in text
