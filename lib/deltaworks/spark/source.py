"""The streaming source: plans which offsets a micro-batch covers. It reads no record.

Kafka records never cross the border between Python and the JVM: the source sends each task one small row with the
offset ranges of its topic-partitions, and the task reads Kafka itself (`consumer.py`). Spark's offset log keeps the
ranges, so a batch that runs again reads the same records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from deltaworks.errors import KafkaReadError
from deltaworks.kafka.admin import admin, listed
from deltaworks.kafka.ranges import Offsets, Range

SCHEMA = "route int, task int, payload binary"
_BROKER_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 10.0
_FIRST_STEP_MS = 1_000
_LAST_MS = 1 << 43
"""In the year 2248."""
_NO_END = 1 << 62


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the planner needs; travels as a JSON option of the data source."""

    bootstrap: str
    partitions: dict[str, int]
    """Partitions per source topic, frozen with the checkpoint."""
    routes: dict[str, list[int]]
    """Per topic: the route to the task that owns partition 0, 1, ... (task and partition have the same number)."""
    start_offsets: str = "earliest"
    max_records_per_batch: int = 1_000_000
    drain_file: str | None = None
    """While it exists no new batch is planned."""


def _count(start: Offsets, end: Offsets) -> int:
    return sum(stop - start[t][p] for t, parts in end.items() for p, stop in parts.items())


def limit_offsets(start: Offsets, end: Offsets, max_records: int) -> Offsets:
    """Cuts a backlog to `max_records`, every partition in proportion to what it has, and at least one record each."""
    total = _count(start, end)
    if total <= max_records:
        return end
    backlog = {(t, p): stop - start[t][p] for t, parts in end.items() for p, stop in parts.items()}
    share = max_records / total
    return {
        topic: {p: start[topic][p] + min(backlog[topic, p], int(backlog[topic, p] * share) + 1) for p in parts}
        for topic, parts in end.items()
    }


def require_growing(start: Offsets, end: Offsets) -> None:
    """A topic that ends before what was read has been made anew; going on would lose records without a word.

    Raises:
        KafkaReadError: names the partitions.
    """
    shrunk = [
        f"{topic}-{p} ends at {stop}, read up to {start[topic][p]}"
        for topic, parts in end.items()
        for p, stop in parts.items()
        if stop < start[topic][p]
    ]
    if shrunk:
        raise KafkaReadError(
            f"source topics hold less than was read from them: {'; '.join(shrunk)}",
            hint="were they deleted and created again? A new checkpoint starts from the beginning",
        )


def cut_by_time(
    start: Offsets, end: Offsets, max_records: int, offsets_at: Callable[[int], Offsets], hint_ms: int
) -> tuple[Offsets, int]:
    """Cuts a backlog of several topics at one time, so that what is older goes first, as in Kafka Streams.

    The cut is the latest time with at most `max_records` before it, found by doubling and halving from the last one.
    Where too many records carry one time, that time is cut in proportion.

    Args:
        start: first offset of the batch.
        end: what is there.
        max_records: of the batch.
        offsets_at: per partition, the first offset at or after a time.
        hint_ms: where to begin the search: the cut of the batch before.

    Returns:
        The end of the batch and its time.
    """

    def upto(time_ms: int) -> Offsets:
        found = offsets_at(time_ms)
        return {t: {p: min(max(found[t][p], start[t][p]), end[t][p]) for p in parts} for t, parts in end.items()}

    low, high, step = hint_ms, hint_ms, _FIRST_STEP_MS
    while low > 0 and _count(start, upto(low)) > max_records:
        high, low, step = low, max(0, low - step), step * 2
    while high < _LAST_MS and _count(start, upto(high)) <= max_records:
        low, high, step = high, min(_LAST_MS, high + step), step * 2
    while high - low > 1:
        middle = (low + high) // 2
        if _count(start, upto(middle)) <= max_records:
            low = middle
        else:
            high = middle
    cut = upto(low)
    if _count(start, cut) == 0:  # more than a batch within one millisecond
        return limit_offsets(start, upto(high), max_records), low
    return cut, low


def ranges_by_task(config: SourceConfig, start: Offsets, end: Offsets) -> dict[tuple[int, int], list[Range]]:
    """`(route, task) -> ranges`: what each task has to read for `[start, end)`; tasks without records are absent."""
    ranges: dict[tuple[int, int], list[Range]] = {}
    for topic, parts in sorted(end.items()):
        for text, stop in parts.items():
            partition, first = int(text), start[topic][text]
            if stop > first:
                owner = config.routes[topic][partition], partition
                ranges.setdefault(owner, []).append(Range(topic, partition, first, stop))
    return ranges


class KafkaRangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planner of one query; lives in a Python process beside the driver."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._admin: AdminClient | None = None
        self._target: Offsets | None = None
        self._cut_ms = 0

    def initialOffset(self) -> Offsets:
        return self.end_offsets() if self._config.start_offsets == "latest" else self._offsets(OffsetSpec.earliest())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._config.max_records_per_batch)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        if self._config.drain_file is not None and Path(self._config.drain_file).exists():
            return start
        end = self._target or self.end_offsets()
        require_growing(start, end)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._config.max_records_per_batch
        if len(end) == 1 or _count(start, end) <= most:
            return limit_offsets(start, end, most)
        cut, self._cut_ms = cut_by_time(start, end, most, self._offsets_at, self._cut_ms)
        return cut

    def end_offsets(self, timeout_s: float = _BROKER_TIMEOUT_S) -> Offsets:
        """Where the topics end now.

        Raises:
            KafkaReadError: the broker did not answer in time.
        """
        return self._offsets(OffsetSpec.latest(), timeout_s)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.end_offsets()

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        ranges = ranges_by_task(self._config, start, end)
        return [InputPartition(ranges)] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, bytes]]:
        for (route, task), ranges in partition.value.items():
            yield route, task, msgspec.msgpack.encode(ranges)

    def _offsets_at(self, time_ms: int) -> Offsets:
        """The first offset at or after a time; beyond the last record, no offset is high enough."""
        found = self._offsets(OffsetSpec.for_timestamp(time_ms))
        return {t: {p: _NO_END if o < 0 else o for p, o in parts.items()} for t, parts in found.items()}

    def _offsets(self, spec: OffsetSpec, timeout_s: float = _BROKER_TIMEOUT_S) -> Offsets:
        """Up to the last stable ones: records of open transactions are not read."""
        wanted = {TopicPartition(t, p): spec for t, count in self._config.partitions.items() for p in range(count)}
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                futures = self._client().list_offsets(
                    wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_REQUEST_TIMEOUT_S
                )
                found = listed(futures)
                break
            except KafkaException as error:
                self._admin = None  # one whose broker was restarted may not answer any more
                if time.monotonic() > deadline:
                    raise KafkaReadError(
                        f"no offsets from {self._config.bootstrap} for {timeout_s:.0f} s: {error}",
                        hint="check that the broker runs (deltaworks status) and that the source topics still exist",
                    ) from error
        offsets: Offsets = {topic: {} for topic in self._config.partitions}
        for position, offset in found.items():
            offsets[position.topic][str(position.partition)] = offset
        return offsets

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = admin(self._config.bootstrap)
        return self._admin


class KafkaRanges(DataSource):
    """Spark data source `kafka_ranges`: rows `(route, task, payload)`, the payload a msgpack list of `Range`."""

    @classmethod
    def name(cls) -> str:
        return "kafka_ranges"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> KafkaRangesReader:
        return KafkaRangesReader(msgspec.json.decode(self.options["config"], type=SourceConfig))


def offsets_option(config: SourceConfig) -> Mapping[str, Any]:
    """Options for `readStream.format("kafka_ranges")`."""
    return {"config": msgspec.json.encode(config).decode()}
