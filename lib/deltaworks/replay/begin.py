"""Finds the batch with which a replay of some days begins: the first that read a record on which their results depend.

The topology says how old such records can be (`topology.lookback`); Kafka and the archive say where they are. Topics
from which tables are filled are read from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from deltaworks.config import Kafka
from deltaworks.control.batches import BatchRecord, Recreated, is_before
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka import admin
from deltaworks.kafka.admin import Position
from deltaworks.lakehouse.archive_reader import ArchiveReader
from deltaworks.lakehouse.later_begin import LaterBegin
from deltaworks.replay.model import ReplayPlan
from deltaworks.replay.same_topics import latest_before_ms
from deltaworks.topology.lookback import NeedsAllHistory, lookback_ms, tables_from_the_beginning


@dataclass(frozen=True)
class Broker:
    """What a plan asks Kafka; see `kafka.admin`."""

    bootstrap: Kafka

    def partition_counts(self) -> Mapping[str, int]:
        return admin.partition_counts(self.bootstrap)

    def compacted(self, topics: Collection[str]) -> Collection[str]:
        return admin.compacted(self.bootstrap, topics)

    def begin_offsets(self, topics: Sequence[str]) -> Mapping[Position, int]:
        return admin.begin_offsets(self.bootstrap, topics)

    def offsets_at(self, topics: Sequence[str], timestamp_ms: int) -> Mapping[Position, int]:
        return admin.offsets_at(self.bootstrap, topics, timestamp_ms)

    def record_limits(self, topics: Collection[str]) -> Mapping[str, int]:
        return admin.record_limits(self.bootstrap, topics)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return admin.topic_ids(admin.admin(self.bootstrap), topics)

    def kept_ms(self, topics: Collection[str]) -> Mapping[str, int | None]:
        return admin.kept_ms(self.bootstrap, topics)


def begun_later(
    plan: ReplayPlan,
    pipeline: Pipeline,
    from_ms: int | None,
    records: Callable[[], Iterator[BatchRecord]],
    broker: Broker,
    archive: ArchiveReader,
) -> ReplayPlan:
    """Leaves out of the plan of a replay of all history what its days do not depend on.

    Args:
        plan: the plan of all history.
        pipeline: the pipeline, with the code to replay.
        from_ms: the first moment of the first day; None: from the beginning.
        records: iterates over the record of batches.
        broker: answers offsets by time.
        archive: archive of the pipeline.

    Raises:
        KafkaReadError: the broker did not answer.
    """
    if from_ms is None:
        return plan
    topology = pipeline.plan()
    whole = {*tables_from_the_beginning(topology, plan.end_offsets), *plan.compacted}
    others = sorted(plan.end_offsets.keys() - whole - plan.global_partitions.keys())
    try:
        if not others:
            raise NeedsAllHistory("tables are filled from all of its topics")
        if pipeline.idle_timeout is not None:
            raise NeedsAllHistory("with idle_timeout, stream time depends on when its partitions had records")
        back_ms = lookback_ms(
            topology,
            [sink for sink in topology.tables if sink.table in plan.tables],
            dead_letters=pipeline.dead_letters.table in plan.tables,
            whole=whole,
        )
    except NeedsAllHistory as reason:
        return msgspec.structs.replace(plan, needs_all=str(reason))
    firsts = _first_offsets(records(), others, plan.recreated)
    since_ms = from_ms - back_ms
    needed = dict(_needed(firsts, since_ms, plan, broker, archive))
    latest = {topic: latest_before_ms(plan, pipeline, topic) for topic in plan.recreated}
    lost = {topic for topic, latest_ms in latest.items() if latest_ms is None or latest_ms >= since_ms}

    def reads_any(record: BatchRecord) -> bool:
        return _reads_any(record, needed, plan.recreated, lost)

    batch, left_out = _first_batch(records(), reads_any, plan.last_batch, whole)
    begin = LaterBegin(
        batch=batch,
        topics=tuple(sorted(whole & plan.end_offsets.keys())),
        since_ms=since_ms,
        complete_from_ms=from_ms,
    )
    return msgspec.structs.replace(plan, begin=begin, records=plan.records - left_out)


def _first_offsets(
    records: Iterator[BatchRecord], topics: Collection[str], recreated: Mapping[str, Recreated]
) -> dict[Position, int]:
    """Where the stream began to read the current topics."""
    firsts: dict[Position, int] = {}
    for record in records:
        for topic in record.offsets.keys() & topics:
            if is_before(record, topic, recreated):
                continue
            for partition, (start, _) in record.offsets[topic].items():
                firsts.setdefault((topic, int(partition)), start)
    return firsts


def _needed(
    firsts: Mapping[Position, int], since_ms: int, plan: ReplayPlan, broker: Broker, archive: ArchiveReader
) -> Iterator[tuple[Position, int]]:
    """Per partition, an offset before which all records are older than `since_ms`."""
    there = broker.partition_counts().keys() - set(plan.gone)
    topics = sorted({topic for topic, _ in firsts if topic in there})
    lows, found = broker.begin_offsets(topics), broker.offsets_at(topics, since_ms)
    kept_ms = broker.kept_ms(topics)
    for (topic, partition), first in firsts.items():
        offsets = [found.get((topic, partition)), archive.first_at(topic, partition, since_ms)]
        age_ms = kept_ms.get(topic)
        if age_ms is None or since_ms < plan.created_ms - age_ms:  # nobody knows how old the lost records were
            offsets.append(_first_gone(first, lows.get((topic, partition)), archive.spans(topic, partition)))
        if known := [offset for offset in offsets if offset is not None]:
            yield (topic, partition), min(known)


def _first_gone(first: int, low: int | None, spans: Sequence[tuple[int, int]]) -> int | None:
    """The first offset from `first` on, but before Kafka's, that no archive has."""
    for start, stop in spans:
        if start <= first < stop:
            first = stop
    return first if low is None or first < low else None


def _first_batch(
    records: Iterator[BatchRecord], reads_any: Callable[[BatchRecord], bool], last_batch: int, whole: Collection[str]
) -> tuple[int, int]:
    """The first batch that read what is needed, or the last; and how many offsets of other topics were read before."""
    left_out = 0
    for record in records:
        if record.batch >= last_batch:
            break
        if reads_any(record):
            return record.batch, left_out
        ranges = (parts.values() for topic, parts in record.offsets.items() if topic not in whole)
        left_out += sum(stop - start for parts in ranges for start, stop in parts)
    return last_batch, left_out


def _reads_any(
    record: BatchRecord, needed: Mapping[Position, int], recreated: Mapping[str, Recreated], lost: Collection[str]
) -> bool:
    """Whether a batch has read needed records; for the time before a topic was recreated, whether it may have."""
    return any(
        topic in lost if is_before(record, topic, recreated) else stop > needed.get((topic, int(partition)), stop)
        for topic, parts in record.offsets.items()
        for partition, (_, stop) in parts.items()
    )
