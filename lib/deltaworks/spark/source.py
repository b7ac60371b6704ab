"""The streaming source: plans what a micro-batch consists of. It reads no records.

Kafka records never cross the border between Python and the JVM: the source sends each task one small row with the
offset ranges of its topic-partitions, and the task reads Kafka itself (`consumer.py`). Spark's offset log keeps the
ranges, so a batch that runs again reads the same records.

The intent of a batch (`control.intents`) says what it is to do, and is durable before Spark hears of the batch. A batch
that has an intent is never planned differently: if Spark's checkpoint is rewound, the same batches come again, with the
same time.

A batch may also be a *tick*: then the tasks that depend on the wall clock run, with or without records.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from deltaworks import clock
from deltaworks.clock import BatchClock
from deltaworks.config import Kafka
from deltaworks.control import next_tick
from deltaworks.control.accepted import Accepted
from deltaworks.control.checkpoint import CheckpointPlan
from deltaworks.control.intents import Intent, Intents
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import IntentError, KafkaReadError, KafkaTopicError
from deltaworks.files import files_in
from deltaworks.kafka.admin import TopicState, admin, topic_states
from deltaworks.kafka.ranges import Offsets, Range
from deltaworks.kernel.idling import Idling
from deltaworks.lakehouse import page_index
from deltaworks.runtime import messages
from deltaworks.runtime.batches import sizes
from deltaworks.runtime.batches.limits import Limit, Part, cut_backlog, require_growing, wait_for_others
from deltaworks.runtime.batches.oversized import grown
from deltaworks.runtime.batches.pace import Pace
from deltaworks.runtime.collector import written_tables
from deltaworks.runtime.messages import BatchHeader, BatchPlan, Row
from deltaworks.settings import Settings
from deltaworks.spark.routes import Routes
from deltaworks.topology.plan import Plan

TICK = "!tick"
"""Stands for a topic in offsets: the wall clock of the last tick. No topic has such a name."""
CLOCK = "!clock"
"""Stands for a topic in offsets: the time of the batch that ended there."""
BATCH = "!batch"
"""Stands for a topic in offsets: the id of that batch."""
_BROKER_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 10.0
_NEW_TOPICS_S = 5.0
_EXPIRE_EVERY = 200
"""Batches."""
_NO_END = 1 << 62
_encode = msgspec.msgpack.encode
T = TypeVar("T")


class StageInput(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of one stage read, and how rows are routed to them."""

    stage: int
    topics: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    """Regular expressions; topics that appear later are read too."""
    routes: tuple[int, ...]
    """The routes of task 0, 1, ...; a task has the number of the partitions that it reads."""
    ticks: bool = False
    """Its tasks depend on the wall clock."""
    tables: tuple[str, ...] = ()
    """The tables of which its tasks are told something with each batch: those that they write from other machines."""

    def reads(self, topic: str) -> bool:
        """Whether the stage reads a topic."""
        return topic in self.topics or any(re.fullmatch(pattern, topic) for pattern in self.patterns)


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the planner needs; passed as a JSON option of the data source."""

    bootstrap: Kafka
    pipeline: str = "NAME"
    """The name that commands use."""
    partitions: dict[str, int]
    """Partitions per topic that exists at the start; for topics given by name they are frozen with the checkpoint."""
    stages: tuple[StageInput, ...]
    global_topics: tuple[str, ...] = ()
    """Topics of global tables. Every task sees them as of the start of the batch."""
    start_offsets: str = "earliest"
    start_latest: tuple[str, ...] = ()
    """Topics at whose end a new pipeline begins, whatever `start_offsets` says."""
    start_earliest: tuple[str, ...] = ()
    """Topics at whose beginning a new pipeline begins, likewise."""
    goes_on_at: Offsets = {}
    """Where a checkpoint that follows another one begins; a topic that is missing here begins as in a new pipeline."""
    goes_on_in: dict[str, str] = {}
    """The ids of the topics that `goes_on_at` is for; topics that are missing here may have any id."""
    max_records_per_batch: int = 1_000_000
    max_bytes_per_batch: int = 1 << 40
    trigger_interval_s: float = 0.0
    """How often Spark asks for a batch."""
    max_trigger_interval_s: float = 0.0
    """The longest interval between batches on a busy machine; see `pace`."""
    sizes_file: str = ""
    """The file with the driver's estimates of record sizes; see `sizes`."""
    max_task_idle_ms: int | None = None
    drain_file: str | None = None
    """While this file exists, no new batch is planned."""
    tick_file: str | None = None
    """Says when the next tick is due (`control.next_tick`); if it is missing, a tick is due now. None: no ticks."""
    intents: bytes
    """The folder of the intents of this checkpoint, pickled: a path in an object store says how it is reached."""
    tables_root: bytes = b""
    """The folder of all tables, likewise; empty if `StageInput.tables` are."""
    lineage: str
    query_id: str
    generation: int
    code: str
    """The planner's identity; see `Intent`."""
    first_batch: int = 0
    """Id of the first batch of this checkpoint."""
    first_clock_ms: int = 0
    """No batch has an earlier time."""
    accepted: Accepted = Accepted()
    """The losses that the stream may go on with."""
    sliced_batch: int | None = None
    """A batch that its tasks read in slices; see `oversized`."""
    shows_always: bool = False
    """In every batch, tasks say where their stores are."""
    may_grow: tuple[str, ...] = ()
    """Topics that may get a multiple of their partitions: the stream goes on with those that it knows."""


def source_config(
    pipeline: Pipeline,
    plan: Plan,
    settings: Settings,
    partitions: dict[str, int],
    routing: Routes,
    *,
    checkpoint: CheckpointPlan,
    intents: Path,
    drain_file: Path,
    tick_file: Path,
    sizes_file: Path,
    generation: int,
    code: str,
    first_clock_ms: int = 0,
    accepted: Accepted | None = None,
    sliced_batch: int | None = None,
    may_grow: tuple[str, ...] = (),
    elsewhere: bool = False,
    shows_always: bool = False,
) -> SourceConfig:
    """The planner's configuration for a pipeline.

    Args:
        pipeline: its options.
        plan: its stages.
        settings: the broker, and how much a batch may hold.
        partitions: of every topic that is read, including those of global tables.
        routing: the routes of its tasks.
        checkpoint: the checkpoint to go on with.
        intents: folder of its intents.
        drain_file: see `SourceConfig`.
        tick_file: likewise.
        sizes_file: likewise.
        generation: of the driver.
        code: digest of the code.
        first_clock_ms: see `SourceConfig`.
        accepted: likewise.
        sliced_batch: likewise.
        may_grow: likewise.
        elsewhere: tasks run on other machines.
        shows_always: see `SourceConfig`.
    """
    idle, routes = pipeline.max_task_idle, routing.by_task()
    stages = tuple(
        StageInput(
            stage=stage.index,
            topics=stage.topics,
            patterns=stage.patterns,
            routes=tuple(routes[stage.index, task] for task in range(routing.tasks[stage.index])),
            ticks=stage.ticks(idle_timeout=pipeline.idle_timeout is not None),
            tables=written_tables(pipeline, plan, stage) if elsewhere else (),
        )
        for stage in plan.stages
    )
    resets = {topic: node.offset_reset for stage in plan.stages for node in stage.sources for topic in node.topics}
    return SourceConfig(
        bootstrap=settings.cluster_of(pipeline.name),
        pipeline=pipeline.name,
        partitions=partitions,
        stages=stages,
        global_topics=plan.global_topics,
        start_offsets=settings.start_offsets,
        start_latest=tuple(topic for topic, reset in resets.items() if reset == "latest"),
        start_earliest=tuple(topic for topic, reset in resets.items() if reset == "earliest"),
        max_records_per_batch=settings.max_records_per_batch,
        max_bytes_per_batch=settings.max_bytes_per_batch,
        trigger_interval_s=pipeline.trigger_interval.total_seconds(),
        max_trigger_interval_s=(pipeline.max_trigger_interval or pipeline.trigger_interval).total_seconds(),
        sizes_file=str(sizes_file),
        max_task_idle_ms=None if idle is None else idle // timedelta(milliseconds=1),
        drain_file=str(drain_file),
        tick_file=str(tick_file) if any(stage.ticks for stage in stages) else None,
        intents=pickle.dumps(intents),
        tables_root=pickle.dumps(settings.tables) if elsewhere else b"",
        lineage=checkpoint.lineage,
        query_id=checkpoint.query_id,
        generation=generation,
        code=code,
        goes_on_at=checkpoint.start or {},
        goes_on_in=checkpoint.topics,
        first_batch=checkpoint.first_batch,
        first_clock_ms=first_clock_ms,
        accepted=accepted or Accepted(),
        sliced_batch=sliced_batch,
        shows_always=shows_always,
        may_grow=may_grow,
    )


class _Rows(DataSourceStreamReader):
    """Hands the rows of a batch to Spark; lives in the tasks."""

    def read(self, partition: InputPartition) -> Iterator[Row]:
        yield from partition.value


class KafkaRangesReader(_Rows, SupportsTriggerAvailableNow):
    """Planner of one query; lives in a Python process beside the driver."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._partitions = dict(config.partitions)
        self._patterns = any(stage.patterns for stage in config.stages)
        self._looked_for_topics = 0.0
        self._admin: AdminClient | None = None
        self._target: Offsets | None = None
        self._pace = Pace(config.trigger_interval_s, config.max_trigger_interval_s)
        self._cut_ms = 0
        self._idling: dict[tuple[int, int], Idling] = {}
        self._intents = Intents(files_in(pickle.loads(config.intents)))
        self._tables: Path | None = pickle.loads(config.tables_root) if config.tables_root else None
        self._clock: BatchClock | None = None
        self._known: int | None = None
        """The highest batch that has an intent; None: not looked for yet."""
        self._last: Intent | None = None
        """The intent that this process has planned last."""
        self._known_before: tuple[int, Intent | None] | None = None
        """A batch, and the intent of the one before."""
        self._planned: int | None = None
        """The batch for which this process has asked for the ids of topics."""
        self._shown = False
        """Whether idle tasks were asked which batch their stores are of."""

    def initialOffset(self) -> Offsets:
        config = self._config
        begin, end = self._offsets(OffsetSpec.earliest()), {}
        if config.start_latest or config.start_offsets == "latest":
            end = self._offsets(OffsetSpec.latest())
        start = {topic: end[topic] if self._starts_at_end(topic) else parts for topic, parts in begin.items()}
        start |= {TICK: {"0": 0}} if config.tick_file is not None else {}
        start = {topic: parts | config.goes_on_at.get(topic, {}) for topic, parts in start.items()}
        return start | {CLOCK: {"0": config.first_clock_ms}, BATCH: {"0": config.first_batch - 1}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._config.max_records_per_batch)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        config, batch = self._config, start[BATCH]["0"] + 1
        told_to_end = config.drain_file is not None and Path(config.drain_file).exists()
        if batch <= self.known and (planned := self._intents.get(batch)) is not None:
            return start if told_to_end and planned.code != config.code else planned.end
        if told_to_end:
            return start
        before = self._before(batch)
        few = None if before is None else grown(before.limit, config.max_records_per_batch)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else config.max_records_per_batch
        ids = self._topic_ids(before)
        there = self._without_what_is_gone(start, before, ids)
        begin, end, all_of_it = self._until(there, most if few is None else min(few, most))
        if batch > config.first_batch and not ranges_of(begin, end) and not _is_tick(start, end):
            return start
        if all_of_it and self._target is None and not self._pace.due:
            return start
        self._pace.begun()
        return self._intend(batch, begin, end, before, ids, few).end

    @property
    def known(self) -> int:
        """The highest batch that has an intent."""
        if self._known is None:
            self._known = max(self._intents.batches(), default=-1)
        return self._known

    def _until(self, start: Offsets, most: int) -> tuple[Offsets, Offsets, bool]:
        """Where the next batch begins and ends for all topics and the tick, and whether nothing is left after it."""
        config = self._config
        end = self._target or self.end_offsets() | self._tick(start)
        if TICK in end:  # a stream that only catches up ticks once, at the end
            end = {**end, TICK: max(end[TICK], start.get(TICK, {"0": 0}), key=lambda tick: tick["0"])}
        start = self._with_new(start, end)
        require_growing(start, end)
        unlimited = {topic: parts for topic, parts in end.items() if topic in config.global_topics or topic == TICK}
        streams = {topic: parts for topic, parts in end.items() if topic not in unlimited}
        if config.max_task_idle_ms is not None and self._target is None:  # otherwise the awaited records never arrive
            streams = self._wait_for_others(start, streams, config.max_task_idle_ms)
        known = sizes.read(Path(config.sizes_file))
        holds = Limit(records=most, bytes=config.max_bytes_per_batch, record_bytes=known)
        cut, self._cut_ms = cut_backlog(start, streams, holds, self._offsets_at, self._cut_ms)
        return start, cut | unlimited, cut == streams

    def _topic_ids(self, before: Intent | None) -> dict[str, str]:
        """The current ids of all topics.

        Raises:
            KafkaTopicError: a topic was deleted or recreated, or got partitions.
        """
        accepted = self._config.accepted.topics
        found = self._patiently(lambda: topic_states(self._client(), self._partitions))
        known = self._ids_after(before)
        for topic, count in self._partitions.items():
            state = self._still_there(topic, found.get(topic))
            grew = topic in self._config.may_grow and state.partitions > count and not state.partitions % count
            if state.partitions != count and not grew:  # else keys stay in the partitions that are known
                raise KafkaTopicError(
                    f"The topic '{topic}' has {state.partitions} partitions now; the stream began with {count}, and "
                    "its state is spread over so many tasks.",
                    hint=f"give it a multiple of {count} partitions; then deltaworks rescale {self._config.pipeline}"
                    if topic in self._config.may_grow
                    else "this stream cannot follow that; deltaworks rescale "
                    f"{self._config.pipeline} --dry-run says why",
                )
            if state.id not in (known.get(topic, state.id), accepted.get(topic)):
                raise self._recreated(topic, known[topic], state.id)
        return {topic: found[topic].id for topic in self._partitions}

    def _ids_after(self, before: Intent | None) -> Mapping[str, str]:
        """The ids that topics have had so far."""
        return self._config.goes_on_in if before is None else before.topics

    def _require_topics_of(self, intent: Intent) -> None:
        """Checks that a batch that an earlier process has planned reads the topics that it was planned for.

        Raises:
            KafkaTopicError: one was deleted or recreated: its offsets now belong to other records.
        """
        read = {each.topic for each in intent.ranges}.union(self._config.global_topics) & intent.topics.keys()
        found = self._patiently(lambda: topic_states(self._client(), read))
        for topic in sorted(read):
            state = self._still_there(topic, found.get(topic))
            if state.id != intent.topics[topic]:
                raise self._recreated(topic, intent.topics[topic], state.id)

    def _still_there(self, topic: str, state: TopicState | None) -> TopicState:
        if state is None:
            raise KafkaTopicError(
                f"The topic '{topic}', which the stream reads, does not exist any more.",
                hint="to go on without what it held: recreate it, then "
                f"deltaworks accept {self._config.pipeline} --new-topic {topic}; or deploy code that does not read it",
            )
        return state

    def _recreated(self, topic: str, was: str, now: str) -> KafkaTopicError:
        return KafkaTopicError(
            f"The topic '{topic}' was deleted and recreated: its id was {was} and is {now}. "
            "Its offsets now belong to other records.",
            hint="to go on with what it holds, from its beginning: "
            f"deltaworks accept {self._config.pipeline} --new-topic {topic}",
        )

    def _without_what_is_gone(self, start: Offsets, before: Intent | None, ids: Mapping[str, str]) -> Offsets:
        """Starts recreated topics at their beginning, and skips records that were given up."""
        known = self._ids_after(before)
        recreated = {topic for topic, id in ids.items() if id != known.get(topic, id)}
        begins = self._offsets(OffsetSpec.earliest()) if recreated else {}
        gone = self._config.accepted.begins
        return {
            topic: begins[topic]
            if topic in recreated
            else {p: max(offset, gone.get(topic, {}).get(p, 0)) for p, offset in parts.items()}
            for topic, parts in start.items()
        }

    def _with_new(self, start: Offsets, end: Offsets) -> Offsets:
        """Reads topics that have appeared since from their beginning, which need not be offset 0."""
        new = {topic for topic, parts in end.items() if parts.keys() - start.get(topic, {}).keys()} - {TICK}
        begins = self._offsets(OffsetSpec.earliest()) if new else {}
        return {
            topic: {p: start.get(topic, {}).get(p, begins.get(topic, {}).get(p, 0)) for p in parts}
            for topic, parts in end.items()
        } | {CLOCK: start[CLOCK]}

    def _intend(
        self, batch: int, start: Offsets, end: Offsets, before: Intent | None, ids: dict[str, str], limit: int | None
    ) -> Intent:
        """Writes the intent of the batch; another process of this checkpoint may have been first."""
        config = self._config
        clock_ms = self._now_ms(start)
        if tick := _is_tick(start, end):
            end = {**end, TICK: {"0": clock_ms}}
        self._last = self._intents.put(
            Intent(
                batch=batch,
                lineage=config.lineage,
                query=config.query_id,
                generation=config.generation,
                code=config.code,
                clock_ms=clock_ms,
                tick=tick,
                ranges=ranges_of(start, end),
                end={**end, CLOCK: {"0": clock_ms}, BATCH: {"0": batch}},
                previous="" if before is None else before.digest,
                topics=ids,
                limit=limit,
            )
        )
        self._known = max(self.known, batch)
        self._planned = batch if self._last.topics == ids else None
        if batch % _EXPIRE_EVERY == 0:
            self._intents.expire(batch)
        return self._last

    def _before(self, batch: int) -> Intent | None:
        """The intent of the batch before, which is done: it is read once, however often nothing is to do."""
        if self._known_before is None or self._known_before[0] != batch:
            self._known_before = batch, self._intent(batch - 1)
        return self._known_before[1]

    def _intent(self, batch: int) -> Intent | None:
        return self._last if self._last is not None and self._last.batch == batch else self._intents.get(batch)

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
        if start == end:
            return []
        batch = end[BATCH]["0"]
        intent = self._intent(batch)
        if intent is None or intent.end != end:
            raise IntentError(
                f"Spark's offset log ends batch {batch} elsewhere than its intent "
                f"{'does' if intent is not None else '(there is none)'}.",
                hint="were files of two copies of this home mixed? Restore one of the copies as a whole",
            )
        if batch != self._planned:
            self._require_topics_of(intent)
        rows = [*plan_rows(self._config, intent, known := max(self.known, batch)), *self._told(intent, known)]
        if not self._shown or self._config.shows_always:
            self._shown = True
            rows += show_rows(self._config, header_of(self._config, intent, known))
        return [InputPartition(rows)]

    def _told(self, intent: Intent, known: int) -> Iterator[Row]:
        """What the driver tells each task of its tables, as files beside them."""
        if self._tables is None:
            return
        header = header_of(self._config, intent, known)
        for stage in self._config.stages:
            for task, route in enumerate(stage.routes):
                told = {name: page_index.files_for(self._tables / name, task) for name in stage.tables}
                yield Row(route, stage.stage, task, messages.TOLD, messages.packed(told), header)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tasks get one that only reads: they may be elsewhere, where neither files nor the intents are."""
        return _Rows, ()

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
        due_ms, now_ms = next_tick.read(Path(path)), self._now_ms(start)
        return {TICK: {"0": now_ms}} if due_ms is not None and now_ms >= due_ms else {TICK: start.get(TICK, {"0": 0})}

    def _now_ms(self, start: Offsets) -> int:
        """The time of a batch: never before that of the previous batch."""
        if self._clock is None:
            self._clock = BatchClock(start[CLOCK]["0"])
        return max(self._clock.now(), start[CLOCK]["0"])

    def _wait_for_others(self, start: Offsets, end: Offsets, max_idle_ms: int) -> Offsets:
        tasks: dict[tuple[int, int], list[Part]] = {}
        for stage in self._config.stages:
            for topic, parts in end.items():
                for p in parts if stage.reads(topic) else ():
                    tasks.setdefault((stage.stage, int(p)), []).append((topic, p))
        several = {task: partitions for task, partitions in tasks.items() if len(partitions) > 1}
        for task in several:
            self._idling.setdefault(task, Idling(max_idle_ms))
        ticks_ms = round(clock.ticks_s() * 1000)  # how long they wait; no step of the wall clock changes it
        return wait_for_others(several, start, end, self._idling, self._newest_ms, self._offsets_at, ticks_ms)

    def _look_for_topics(self) -> None:
        """Looks for new topics that a pattern matches."""
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
        """The first offset at or after a time; beyond the last record, a very high offset."""
        found = self._offsets(OffsetSpec.for_timestamp(time_ms))
        return {t: {p: _NO_END if o < 0 else o for p, o in parts.items()} for t, parts in found.items()}

    def _newest_ms(self) -> Mapping[Part, int]:
        found = self._list(OffsetSpec.max_timestamp(), _BROKER_TIMEOUT_S)
        return {(position.topic, str(position.partition)): each.timestamp for position, each in found.items()}

    def _offsets(self, spec: OffsetSpec, timeout_s: float = _BROKER_TIMEOUT_S) -> Offsets:
        """Offsets up to the last stable ones: records of open transactions are not read."""
        offsets: Offsets = {topic: {} for topic in self._partitions}
        for position, each in self._list(spec, timeout_s).items():
            offsets[position.topic][str(position.partition)] = each.offset
        return offsets

    def _list(self, spec: OffsetSpec, timeout_s: float) -> dict[TopicPartition, ListOffsetsResultInfo]:
        wanted = {TopicPartition(t, p): spec for t, count in self._partitions.items() for p in range(count)}

        def ask() -> dict[TopicPartition, ListOffsetsResultInfo]:
            futures = self._client().list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_REQUEST_TIMEOUT_S
            )
            return {position: future.result() for position, future in futures.items()}

        return self._patiently(ask, timeout_s)

    def _patiently(self, ask: Callable[[], T], timeout_s: float = _BROKER_TIMEOUT_S) -> T:
        """Asks a broker that may be restarting."""
        deadline = clock.ticks_s() + timeout_s
        while True:
            try:
                return ask()
            except (KafkaException, KafkaReadError) as error:
                self._admin = None  # a client whose broker was restarted may not answer any more
                if clock.ticks_s() > deadline:
                    raise KafkaReadError(
                        f"no answer from {self._config.bootstrap} for {timeout_s:.0f} s: {error}",
                        hint="check that the broker runs (deltaworks status) and that the source topics still exist",
                    ) from error

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = admin(self._config.bootstrap)
        return self._admin


def ranges_of(start: Offsets, end: Offsets) -> list[Range]:
    """The ranges that a batch reads from one position to another, in the order of topics."""
    return [
        Range(topic, int(p), start[topic][p], stop)
        for topic, parts in sorted(end.items())
        for p, stop in parts.items()
        if not topic.startswith("!") and stop > start[topic][p]
    ]


def plan_rows(config: SourceConfig, intent: Intent, known: int) -> Sequence[Row]:
    """The rows of a batch: one for the driver, one for each task that has something to do.

    Args:
        config: where tasks are, and what they read.
        intent: the intent of the batch.
        known: the highest batch that has an intent.
    """
    header = header_of(config, intent, known)
    first = config.stages[0]
    plan = _encode(BatchPlan(intent.ranges, intent.tick))
    rows = [Row(first.routes[0], first.stage, 0, messages.BATCH, plan, header)]
    for stage in config.stages:
        ticks = intent.tick and stage.ticks
        inputs: dict[int, list[Range]] = {task: [] for task in range(len(stage.routes))} if ticks else {}
        for each in intent.ranges:
            if each.topic not in config.global_topics and stage.reads(each.topic):
                inputs.setdefault(each.partition, []).append(each)
        for task, ranges in inputs.items():
            rows.append(Row(stage.routes[task], stage.stage, task, messages.INPUT, _encode(ranges), header))
    return rows


def show_rows(config: SourceConfig, header: bytes) -> list[Row]:
    """A row for each shard, in the first batch that a driver plans: its tasks show readers their stores. If these are
    beside executors, tasks wander, so every batch has such rows.

    A task that has no records for long would otherwise say nothing, and nobody could know that its store is empty.
    """
    shards = {route: (stage.stage, task) for stage in config.stages for task, route in enumerate(stage.routes)}
    return [Row(route, *task, messages.SHOW, b"", header) for route, task in shards.items()]


def header_of(config: SourceConfig, intent: Intent, known: int) -> bytes:
    """`Row.batch` of a batch; see `plan_rows`."""
    position = _encode({topic: intent.end[topic] for topic in config.global_topics}) if config.global_topics else None
    in_slices = intent.batch == config.sliced_batch
    return _encode(BatchHeader(intent.batch, intent.clock_ms, intent.digest, known, position, in_slices))


def _is_tick(start: Offsets, end: Offsets) -> bool:
    nothing = {"0": 0}
    return end.get(TICK, nothing)["0"] > start.get(TICK, nothing)["0"]


def _now_ms() -> int:
    return clock.wall_ms()


class KafkaRanges(DataSource):
    """Spark data source `kafka_ranges`: rows that tell tasks what to read."""

    @classmethod
    def name(cls) -> str:
        return "kafka_ranges"

    def schema(self) -> str:
        return messages.SCHEMA

    def streamReader(self, schema: StructType) -> KafkaRangesReader:
        return KafkaRangesReader(msgspec.json.decode(self.options["config"], type=SourceConfig))


def offsets_option(config: SourceConfig) -> Mapping[str, Any]:
    """Options for `readStream.format("kafka_ranges")`."""
    return {"config": msgspec.json.encode(config).decode()}
