"""Records from the future, in a topic that says how far ahead its records may be."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest

from deltaworks import (
    ConsumedRecord,
    Pipeline,
    StreamsBuilder,
    StreamsError,
    Timestamps,
    TimeWindows,
    Topic,
    TopologyError,
)
from deltaworks.kernel.records import RecordBatch
from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded

NOW_MS = 1_800_000_000_000
AHEAD_MS = 86_400_000
IN_MICROSECONDS = NOW_MS * 1000
Otherwise = Literal["fail", "dead_letter", "clamp"]


def by_value(record: ConsumedRecord, partition_time_ms: int) -> int:
    return int(record.value)


def pipeline(otherwise: Otherwise | None, **stream: Any) -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=str, **stream).to("out")

    limit = None if otherwise is None else Timestamps(max_ahead=timedelta(days=1), otherwise=otherwise)
    return Pipeline(name="p", topology=topology, topics=(Topic("in", timestamps=limit),))


def run(pipeline: Pipeline, times_ms: list[int], errors: ErrorPolicy | None = None) -> Recording:
    values = [str(time_ms).encode() for time_ms in times_ms]
    batch = RecordBatch("in", 0, list(range(len(times_ms))), times_ms, [b"k"] * len(times_ms), [*values])
    return run_recorded(pipeline.plan(), {"in": 1}, [MicroBatch(NOW_MS, (batch,))], errors=errors or ErrorPolicy())


def times(recording: Recording) -> list[int]:
    return [record.timestamp_ms for record in recording.topic("out")]


def letters(recording: Recording) -> list[tuple[int, str]]:
    return [(letter.timestamp_ms, letter.message) for task in recording.tasks.values() for letter in task.dead_letters]


STREAMS = pytest.mark.parametrize("stream", [{}, {"timestamp_extractor": by_value}], ids=["own time", "extracted"])
TIMES = [NOW_MS, NOW_MS + AHEAD_MS, IN_MICROSECONDS, NOW_MS + AHEAD_MS + 1, 5]


@STREAMS
def test_without_a_limit_any_time_is_taken(stream: dict[str, Any]) -> None:
    assert times(run(pipeline(None, **stream), TIMES)) == TIMES


@STREAMS
def test_a_record_of_the_future_stops_the_stream_whatever_the_pipeline_says(stream: dict[str, Any]) -> None:
    with pytest.raises(StreamsError, match=rf"{IN_MICROSECONDS} is after .*; is it in microseconds\?") as raised:
        run(pipeline("fail", **stream), TIMES, ErrorPolicy.of("continue"))

    assert raised.value.position is not None and raised.value.position.offset == 2


@STREAMS
def test_a_record_of_the_future_is_set_aside_whatever_the_pipeline_says(stream: dict[str, Any]) -> None:
    recording = run(pipeline("dead_letter", **stream), TIMES, ErrorPolicy.of("fail"))

    assert times(recording) == [NOW_MS, NOW_MS + AHEAD_MS, 5]
    assert [time_ms for time_ms, _ in letters(recording)] == [IN_MICROSECONDS, NOW_MS + AHEAD_MS + 1]
    assert "is it in microseconds?" in letters(recording)[0][1]
    assert "is it in" not in letters(recording)[1][1]


@STREAMS
def test_a_record_of_the_future_is_taken_at_the_latest_time(stream: dict[str, Any]) -> None:
    latest_ms = NOW_MS + AHEAD_MS

    assert times(run(pipeline("clamp", **stream), TIMES)) == [NOW_MS, latest_ms, latest_ms, latest_ms, 5]


def test_one_such_record_does_not_close_the_windows_of_the_others() -> None:
    def topology(builder: StreamsBuilder) -> None:
        windows = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))
        stream = builder.stream("in", key=str, value=str)
        stream.group_by_key().windowed_by(windows).count(store="counts").to_stream().map(
            lambda window, count: (window.key, str(count)), key=str, value=str
        ).to("out")

    def counted(limit: Timestamps | None) -> int:
        """How many counts have seen both records of now."""
        topics = (Topic("in", timestamps=limit),)
        counting = Pipeline(name="p", topology=topology, topics=topics)
        recording = run(counting, [NOW_MS, IN_MICROSECONDS, NOW_MS])
        return [record.value for record in recording.topic("out")].count(b"2")

    limit = Timestamps(max_ahead=timedelta(0), otherwise="dead_letter")
    assert (counted(limit), counted(None)) == (1, 0)


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        (Topic("out", timestamps=Timestamps(max_ahead=timedelta(1))), "no stream or table reads it"),
        (Topic("in", timestamps=Timestamps(max_ahead=timedelta(-1))), "not a duration of at least 0"),
        (Topic("in", timestamps=Timestamps(max_ahead=5)), "max_ahead is 5"),  # type: ignore[arg-type]
        (Topic("in", timestamps=Timestamps(max_ahead=timedelta(1), otherwise="skip")), "otherwise is 'skip'"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_makes_no_sense_is_a_problem(topic: Topic, problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        replace(pipeline(None), topics=(topic,)).plan()


def test_a_topic_that_a_pattern_matches_has_its_limit() -> None:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream(pattern="in|other", key=str, value=str).to("out")

    topics = (Topic("in", timestamps=Timestamps(max_ahead=timedelta(0))),)
    (source,) = Pipeline(name="p", topology=topology, topics=topics).plan().stages[0].sources

    assert dict(source.timestamps) == {"in": topics[0].timestamps}


def test_a_limit_is_no_part_of_what_a_checkpoint_was_made_for() -> None:
    assert pipeline("clamp").plan().fingerprint() == pipeline(None).plan().fingerprint()
