"""The streaming source: plans what a micro-batch consists of. It reads no record.

Kafka records never cross the border between Python and the JVM: the source sends each task one small row with the
offset ranges of its topic-partitions, and the task reads Kafka itself (`consumer.py`). Spark's offset log keeps the
ranges, so a batch that runs again reads the same records.

A batch may be a *tick* besides: then the tasks that depend on the wall clock run, with records or without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from deltaworks import clock
from deltaworks.control import next_tick
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import KafkaReadError, KafkaTopicError
from deltaworks.kafka.admin import admin
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.idling import Idling
from deltaworks.settings import Settings
from deltaworks.spark import rows as row_kinds
from deltaworks.spark.cuts import Limit, Part, cut_backlog, require_growing, wait_for_others
from deltaworks.spark.routes import Routes
from deltaworks.spark.rows import BatchPlan
from deltaworks.topology.stages import Plan

SCHEMA = "route int, stage int, task int, kind int, payload binary, position binary"
TICK = "!tick"
"""In the place of a topic in offsets: the wall clock of the last tick. No topic has such a name."""
_BROKER_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 10.0
_NEW_TOPICS_S = 5.0
_NO_END = 1 << 62
_encode = msgspec.msgpack.encode


class StageInput(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of one stage read, and how to reach them."""

    stage: int
    topics: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    """Regular expressions; topics that appear later are read too."""
    routes: tuple[int, ...]
    """Of task 0, 1, ...; a task has the number of the partitions that it reads."""
    ticks: bool = False
    """Its tasks depend on the wall clock."""

    def reads(self, topic: str) -> bool:
        """Whether it reads a topic."""
        return topic in self.topics or any(re.fullmatch(pattern, topic) for pattern in self.patterns)


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the planner needs; travels as a JSON option of the data source."""

    bootstrap: str
    partitions: dict[str, int]
    """Partitions per topic that is there at the start; of the named ones they are frozen with the checkpoint."""
    stages: tuple[StageInput, ...]
    global_topics: tuple[str, ...] = ()
    """Every task sees them, as of the start of the batch."""
    start_offsets: str = "earliest"
    start_latest: tuple[str, ...] = ()
    """Topics at whose end a new pipeline begins, whatever `start_offsets` says."""
    start_earliest: tuple[str, ...] = ()
    """Likewise at the beginning."""
    goes_on_at: Offsets = {}
    """Where a line begins that follows another one; a topic that is not there begins as in a new pipeline."""
    max_records_per_batch: int = 1_000_000
    max_task_idle_ms: int | None = None
    drain_file: str | None = None
    """While it exists no new batch is planned."""
    tick_file: str | None = None
    """Says when the next tick is due (`control.next_tick`); without it a tick is due now. None: there are no ticks."""


def source_config(
    pipeline: Pipeline,
    plan: Plan,
    settings: Settings,
    partitions: dict[str, int],
    routing: Routes,
    *,
    drain_file: Path,
    tick_file: Path,
) -> SourceConfig:
    """What the planner needs to know of a pipeline.

    Args:
        pipeline: its options.
        plan: its stages.
        settings: the broker, and how much a batch may hold.
        partitions: of every topic that is read, those of global tables too.
        routing: where its tasks are.
        drain_file: see `SourceConfig`.
        tick_file: likewise.
    """
    idle, routes = pipeline.max_task_idle, routing.by_task()
    stages = tuple(
        StageInput(
            stage=stage.index,
            topics=stage.topics,
            patterns=stage.patterns,
            routes=tuple(routes[stage.index, task] for task in range(routing.tasks[stage.index])),
            ticks=pipeline.idle_timeout is not None or stage.has_processors,
        )
        for stage in plan.stages
    )
    resets = {topic: node.offset_reset for stage in plan.stages for node in stage.sources for topic in node.topics}
    return SourceConfig(
        bootstrap=settings.bootstrap,
        partitions=partitions,
        stages=stages,
        global_topics=plan.global_topics,
        start_offsets=settings.start_offsets,
        start_latest=tuple(topic for topic, reset in resets.items() if reset == "latest"),
        start_earliest=tuple(topic for topic, reset in resets.items() if reset == "earliest"),
        max_records_per_batch=settings.max_records_per_batch,
        max_task_idle_ms=None if idle is None else idle // timedelta(milliseconds=1),
        drain_file=str(drain_file),
        tick_file=str(tick_file) if any(stage.ticks for stage in stages) else None,
    )


class KafkaRangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planner of one query; lives in a Python process beside the driver."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._partitions = dict(config.partitions)
        self._patterns = any(stage.patterns for stage in config.stages)
        self._looked_for_topics = 0.0
        self._admin: AdminClient | None = None
        self._target: Offsets | None = None
        self._cut_ms = 0
        self._idling: dict[tuple[int, int], Idling] = {}

    def initialOffset(self) -> Offsets:
        config = self._config
        begin, end = self._offsets(OffsetSpec.earliest()), {}
        if config.start_latest or config.start_offsets == "latest":
            end = self._offsets(OffsetSpec.latest())
        start = {topic: end[topic] if self._starts_at_end(topic) else parts for topic, parts in begin.items()}
        start |= {TICK: {"0": 0}} if config.tick_file is not None else {}
        return {topic: parts | config.goes_on_at.get(topic, {}) for topic, parts in start.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._config.max_records_per_batch)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        config = self._config
        if config.drain_file is not None and Path(config.drain_file).exists():
            return start
        end = self._target or self.end_offsets() | self._tick(start)
        start = _with_new(start, end)
        require_growing(start, end)
        unlimited = {topic: parts for topic, parts in end.items() if topic in config.global_topics or topic == TICK}
        streams = {topic: parts for topic, parts in end.items() if topic not in unlimited}
        if config.max_task_idle_ms is not None and self._target is None:  # else nobody will bring what is waited for
            streams = self._wait_for_others(start, streams, config.max_task_idle_ms)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else config.max_records_per_batch
        holds = Limit(records=most)
        cut, self._cut_ms = cut_backlog(start, streams, holds, self._offsets_at, self._cut_ms)
        return cut | unlimited

    def end_offsets(self, timeout_s: float = _BROKER_TIMEOUT_S) -> Offsets:
        """Where the topics end now.

        Raises:
            KafkaReadError: the broker did not answer in time.
        """
        if self._patterns:
            self._look_for_topics()
        return self._offsets(OffsetSpec.latest(), timeout_s)

    def prepareForTriggerAvailableNow(self) -> None:
        now = {TICK: {"0": _now_ms()}} if self._config.tick_file is not None else {}
        self._target = self.end_offsets() | now

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        return [InputPartition(plan_rows(self._config, _with_new(start, end), end))] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int, int, bytes, bytes | None]]:
        yield from partition.value

    def _starts_at_end(self, topic: str) -> bool:
        config = self._config
        if topic in config.global_topics or topic in config.start_earliest:
            return False
        return topic in config.start_latest or config.start_offsets == "latest"

    def _tick(self, start: Offsets) -> Offsets:
        """The time now, if a tick is due."""
        path = self._config.tick_file
        if path is None:
            return {}
        due_ms, now_ms = next_tick.read(Path(path)), _now_ms()
        return {TICK: {"0": now_ms}} if due_ms is not None and now_ms >= due_ms else {TICK: start.get(TICK, {"0": 0})}

    def _wait_for_others(self, start: Offsets, end: Offsets, max_idle_ms: int) -> Offsets:
        tasks: dict[tuple[int, int], list[Part]] = {}
        for stage in self._config.stages:
            for topic, parts in end.items():
                for p in parts if stage.reads(topic) else ():
                    tasks.setdefault((stage.stage, int(p)), []).append((topic, p))
        several = {task: partitions for task, partitions in tasks.items() if len(partitions) > 1}
        for task in several:
            self._idling.setdefault(task, Idling(max_idle_ms))
        return wait_for_others(several, start, end, self._idling, self._newest_ms, self._offsets_at, _now_ms())

    def _look_for_topics(self) -> None:
        """Topics that a pattern matches and that were not there before."""
        if clock.ticks_s() - self._looked_for_topics < _NEW_TOPICS_S:
            return
        self._looked_for_topics = clock.ticks_s()
        try:
            found = self._client().list_topics(timeout=_REQUEST_TIMEOUT_S).topics
        except KafkaException:  # the broker is asked again for the offsets
            return
        for topic, metadata in found.items():
            stage = next((each for each in self._config.stages if topic not in each.topics and each.reads(topic)), None)
            if stage is None or topic in self._partitions or metadata.error is not None:
                continue
            if len(metadata.partitions) > len(stage.routes):
                raise KafkaTopicError(
                    f"the new topic '{topic}', which a pattern matches, has {len(metadata.partitions)} partitions, but "
                    f"the stage that reads it was started with {len(stage.routes)} tasks",
                    hint="start the pipeline with a new checkpoint, or give the topic no more partitions than that",
                )
            self._partitions[topic] = len(metadata.partitions)

    def _offsets_at(self, time_ms: int) -> Offsets:
        """The first offset at or after a time; beyond the last record, no offset is high enough."""
        found = self._offsets(OffsetSpec.for_timestamp(time_ms))
        return {t: {p: _NO_END if o < 0 else o for p, o in parts.items()} for t, parts in found.items()}

    def _newest_ms(self) -> Mapping[Part, int]:
        found = self._list(OffsetSpec.max_timestamp(), _BROKER_TIMEOUT_S)
        return {(position.topic, str(position.partition)): each.timestamp for position, each in found.items()}

    def _offsets(self, spec: OffsetSpec, timeout_s: float = _BROKER_TIMEOUT_S) -> Offsets:
        """Up to the last stable ones: records of open transactions are not read."""
        offsets: Offsets = {topic: {} for topic in self._partitions}
        for position, each in self._list(spec, timeout_s).items():
            offsets[position.topic][str(position.partition)] = each.offset
        return offsets

    def _list(self, spec: OffsetSpec, timeout_s: float) -> dict[TopicPartition, ListOffsetsResultInfo]:
        wanted = {TopicPartition(t, p): spec for t, count in self._partitions.items() for p in range(count)}
        deadline = clock.ticks_s() + timeout_s
        while True:
            try:
                futures = self._client().list_offsets(
                    wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_REQUEST_TIMEOUT_S
                )
                return {position: future.result() for position, future in futures.items()}
            except KafkaException as error:
                self._admin = None  # one whose broker was restarted may not answer any more
                if clock.ticks_s() > deadline:
                    raise KafkaReadError(
                        f"no offsets from {self._config.bootstrap} for {timeout_s:.0f} s: {error}",
                        hint="check that the broker runs (deltaworks status) and that the source topics still exist",
                    ) from error

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = admin(self._config.bootstrap)
        return self._admin


def plan_rows(
    config: SourceConfig, start: Offsets, end: Offsets
) -> Sequence[tuple[int, int, int, int, bytes, bytes | None]]:
    """The rows of a batch: one for the driver, one for each task that has something to do."""
    everything = [
        Range(topic, int(p), start[topic][p], stop)
        for topic, parts in sorted(end.items())
        for p, stop in parts.items()
        if topic != TICK and stop > start[topic][p]
    ]
    tick = end.get(TICK) != start.get(TICK)
    position = _encode({topic: end[topic] for topic in config.global_topics}) if config.global_topics else None
    first = config.stages[0]
    rows = [(first.routes[0], first.stage, 0, row_kinds.BATCH, _encode(BatchPlan(everything, tick)), position)]
    for stage in config.stages:
        inputs: dict[int, list[Range]] = {task: [] for task in range(len(stage.routes))} if tick and stage.ticks else {}
        for each in everything:
            if each.topic not in config.global_topics and stage.reads(each.topic):
                inputs.setdefault(each.partition, []).append(each)
        for task, ranges in inputs.items():
            rows.append((stage.routes[task], stage.stage, task, row_kinds.INPUT, _encode(ranges), position))
    return rows


def _with_new(start: Offsets, end: Offsets) -> Offsets:
    """Topics that have appeared since are read from their beginning."""
    return {topic: {p: start.get(topic, {}).get(p, 0) for p in parts} for topic, parts in end.items()}


def _now_ms() -> int:
    return clock.wall_ms()


class KafkaRanges(DataSource):
    """Spark data source `kafka_ranges`: rows that say who has to read what."""

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
