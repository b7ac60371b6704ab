"""The streaming source: plans which offsets a micro-batch covers. It reads no record.

Kafka records never cross the border between Python and the JVM: the source sends each task one small row with the
offset ranges of its topic-partitions, and the task reads Kafka itself (`consumer.py`). Spark's offset log keeps the
ranges, so a batch that runs again reads the same records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from deltaworks.errors import KafkaReadError
from deltaworks.kafka.admin import admin

SCHEMA = "route int, task int, payload binary"
_BROKER_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 10.0

Offsets = dict[str, dict[str, int]]
"""`{topic: {partition: next offset}}`; partitions are texts, because Spark keeps offsets as JSON."""


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Records of one topic-partition: `start <= offset < stop`."""

    topic: str
    partition: int
    start: int
    stop: int


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


def limit_offsets(start: Offsets, end: Offsets, max_records: int) -> Offsets:
    """Cuts a backlog to `max_records`, every partition in proportion to what it has, and at least one record each."""
    backlog = {(t, p): stop - start[t][p] for t, parts in end.items() for p, stop in parts.items()}
    total = sum(backlog.values())
    if total <= max_records:
        return end
    share = max_records / total
    return {
        topic: {p: start[topic][p] + min(backlog[topic, p], int(backlog[topic, p] * share) + 1) for p in parts}
        for topic, parts in end.items()
    }


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

    def initialOffset(self) -> Offsets:
        if self._config.start_offsets == "latest":
            return self._watermarks(latest=True)
        return self._watermarks(latest=False)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._config.max_records_per_batch)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        if self._config.drain_file is not None and Path(self._config.drain_file).exists():
            return start
        end = self._target or self._watermarks(latest=True)
        # The end never lies before the start: a log that lost records is an error of the task that reads it.
        end = {t: {p: max(stop, start[t][p]) for p, stop in parts.items()} for t, parts in end.items()}
        match limit:
            case ReadAllAvailable():
                return limit_offsets(start, end, self._config.max_records_per_batch)
            case ReadMaxRows(max_rows=rows):
                return limit_offsets(start, end, rows)
            case _:
                return end

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._watermarks(latest=True)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        ranges = ranges_by_task(self._config, start, end)
        return [InputPartition(ranges)] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, bytes]]:
        for (route, task), ranges in partition.value.items():
            yield route, task, msgspec.msgpack.encode(ranges)

    def _watermarks(self, *, latest: bool) -> Offsets:
        """First offsets, or the last stable ones: records of open transactions are not read."""
        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
        wanted = {TopicPartition(t, p): spec for t, count in self._config.partitions.items() for p in range(count)}
        deadline = time.monotonic() + _BROKER_TIMEOUT_S
        while True:
            try:
                futures = self._client().list_offsets(
                    wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_REQUEST_TIMEOUT_S
                )
                found = {position: future.result().offset for position, future in futures.items()}
                break
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise KafkaReadError(
                        f"no offsets from {self._config.bootstrap} for {_BROKER_TIMEOUT_S:.0f} s: {error}",
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
