"""Timestamp extractors: the functions by which a source gives a record its time.

A source without one takes the record's own timestamp, like `FailOnInvalidTimestamp`, but on the fastest path.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

import msgspec

from deltaworks.errors import StreamsError

_MILLISECOND = timedelta(milliseconds=1)


class ConsumedRecord(msgspec.Struct, frozen=True):
    """A record as a timestamp extractor sees it: read, but not yet taken.

    Source: `ConsumerRecord`; differs: it knows the wall clock, so that an extractor gives the same result whenever a
    batch is run again.
    """

    key: Any
    value: Any
    timestamp_ms: int
    """The timestamp that its producer or the broker set; -1 for none."""
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int
    wall_clock_ms: int
    """The wall clock of the micro-batch or of the test driver."""


class TimestampExtractor(Protocol):
    """A function `(record, partition_time_ms) -> timestamp_ms`; a negative result drops the record.

    `partition_time_ms` is the largest timestamp taken so far from the record's partition, -1 before the first. An
    extractor that raises stops the stream, whatever the error handlers say.

    Source: `TimestampExtractor`; differs: no.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> def when(visit: ConsumedRecord, partition_time_ms: int) -> int:
    ...     return visit.value
    >>> builder.stream("visits", key=str, value=int, timestamp_extractor=when).to("out")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("visits").pipe_input("ann", 5_000)
    >>> driver.create_output_topic("out").read_record().timestamp_ms
    5000
    """

    def __call__(self, record: ConsumedRecord, partition_time_ms: int, /) -> int: ...


class FailOnInvalidTimestamp:
    """The record's own timestamp; a negative one is an error. Sources without an extractor do the same.

    Source: `FailOnInvalidTimestamp`; differs: `on_error="continue"` sets such a record aside.
    """

    def __call__(self, record: ConsumedRecord, partition_time_ms: int) -> int:
        if record.timestamp_ms < 0:
            raise StreamsError(
                f"{_position(record)} has the timestamp {record.timestamp_ms}, which is negative.",
                hint="use LogAndSkipOnInvalidTimestamp() or UsePartitionTimeOnInvalidTimestamp()",
            )
        return record.timestamp_ms


class LogAndSkipOnInvalidTimestamp:
    """The record's own timestamp; a record with a negative one is dropped and counted.

    Source: `LogAndSkipOnInvalidTimestamp`; differs: it counts and does not log.
    """

    def __call__(self, record: ConsumedRecord, partition_time_ms: int) -> int:
        return record.timestamp_ms


class UsePartitionTimeOnInvalidTimestamp:
    """The record's own timestamp; in place of a negative one, the largest that its partition has had.

    Source: `UsePartitionTimeOnInvalidTimestamp`; differs: no.
    """

    def __call__(self, record: ConsumedRecord, partition_time_ms: int) -> int:
        if record.timestamp_ms >= 0:
            return record.timestamp_ms
        if partition_time_ms < 0:
            raise StreamsError(
                f"{_position(record)} has no valid timestamp, and neither has any record before it.",
                hint="use LogAndSkipOnInvalidTimestamp() to drop such records",
            )
        return partition_time_ms


class WallclockTimestampExtractor:
    """The wall clock of the micro-batch: when the record was processed, not when it happened.

    Source: `WallclockTimestampExtractor`; differs: a batch that is run again has the same clock.
    """

    def __call__(self, record: ConsumedRecord, partition_time_ms: int) -> int:
        return record.wall_clock_ms


@dataclass(frozen=True, kw_only=True)
class Timestamps:
    """How far ahead of the clock the records of a topic may be, and what happens to records further ahead.

    One record with its time in microseconds, or of the year 2090, takes stream time with it: windows close, and later
    records are late. `Topic("orders", timestamps=Timestamps(max_ahead=timedelta(days=1)))` refuses it instead.

    Source: none. Kafka has `message.timestamp.after.max.ms` for what brokers take.

    Args:
        max_ahead: limit relative to the wall clock of the micro-batch, so a batch that is run again gives the same.
            It applies to the result of the timestamp extractor, if there is one.
        otherwise: `fail` stops the stream, `dead_letter` sets the record aside, whatever `on_error` says; `clamp` gives
            it the latest time that is allowed.
    """

    max_ahead: timedelta
    otherwise: Literal["fail", "dead_letter", "clamp"] = "fail"


def latest_ms(limit: Timestamps, wall_clock_ms: int) -> int:
    """The largest timestamp that is allowed in a micro-batch."""
    return wall_clock_ms + limit.max_ahead // _MILLISECOND


def problem_of(limit: Timestamps) -> str | None:
    """The problem of a limit, if it has one."""
    if not isinstance(limit.max_ahead, timedelta) or limit.max_ahead < timedelta(0):
        return f"max_ahead is {limit.max_ahead!r}, not a duration of at least 0."
    if limit.otherwise not in ("fail", "dead_letter", "clamp"):
        return f"otherwise is {limit.otherwise!r}, not 'fail', 'dead_letter' or 'clamp'."
    return None


class TimestampTooFarAhead(ValueError):
    """A record is further in the future than `Timestamps` allows."""

    def __init__(self, timestamp_ms: int, latest: int, otherwise: str) -> None:
        near = range(latest // 2, latest + 1)  # in the unit that it should have
        units = ((1_000, "microseconds"), (1_000_000, "nanoseconds"))
        unit = "".join(f"; is it in {name}?" for factor, name in units if timestamp_ms // factor in near)
        super().__init__(f"the timestamp {timestamp_ms} is after {latest}, the latest that the topic may have{unit}")
        self.handling: Literal["fail", "continue"] = "continue" if otherwise == "dead_letter" else "fail"


def _position(record: ConsumedRecord) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"
