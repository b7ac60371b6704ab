"""What the planner of a stream does with a real broker: where it begins, new topics, records that wait for others."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from deltaworks import clock
from deltaworks.errors import KafkaTopicError
from deltaworks.kafka.admin import TopicSpec, create_topics
from deltaworks.kafka.ranges import Offsets
from deltaworks.runtime.messages import Row
from deltaworks.spark import source
from deltaworks.spark.source import BATCH, CLOCK, KafkaRangesReader, SourceConfig, StageInput
from tests.support.live_stack import LiveStack


def produce(kafka: LiveStack, topic: str, *times_ms: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for time_ms in times_ms:
        producer.produce(topic, b"v", timestamp=time_ms, partition=0)
    assert producer.flush(30) == 0


def config(kafka: LiveStack, *topics: str, patterns: tuple[str, ...] = (), **options: Any) -> SourceConfig:
    stage = StageInput(stage=0, topics=topics, patterns=patterns, routes=(7,))
    partitions = dict.fromkeys((*topics, *options.get("global_topics", ())), 1)
    return SourceConfig(
        bootstrap=kafka.bootstrap, partitions=partitions, stages=(stage,), lineage="line",
        intents=pickle.dumps(Path(tempfile.mkdtemp())), query_id="run", generation=1, code="", **options,
    )  # fmt: skip


def latest(planner: KafkaRangesReader, start: Offsets) -> Offsets:
    """As Spark asks; the batch and its time go without saying."""
    before = {CLOCK: {"0": 0}, BATCH: {"0": planner.known}}
    end = planner.latestOffset(start | before, planner.getDefaultReadLimit())
    return {topic: parts for topic, parts in end.items() if topic not in before}


def rows(planner: KafkaRangesReader) -> Sequence[Row]:
    """Of the batch that was planned last."""
    return source.plan_rows(planner._config, planner._intents.require(planner.known), planner.known)


def begin(planner: KafkaRangesReader) -> Offsets:
    return {topic: parts for topic, parts in planner.initialOffset().items() if topic not in (CLOCK, BATCH)}


def test_a_topic_may_begin_at_its_end_but_a_global_table_never_does(kafka: LiveStack) -> None:
    first, second, whole = (kafka.topic(name) for name in ("begins", "ends", "whole"))
    for topic in (first, second, whole):
        produce(kafka, topic, 1, 2, 3)

    planner = KafkaRangesReader(config(kafka, first, second, global_topics=(whole,), start_latest=(second,)))
    everything = replace_start(planner, start_offsets="latest", start_earliest=(first,))

    assert begin(planner) == {first: {"0": 0}, second: {"0": 3}, whole: {"0": 0}}
    assert begin(everything) == {first: {"0": 0}, second: {"0": 3}, whole: {"0": 0}}


def replace_start(planner: KafkaRangesReader, **options: Any) -> KafkaRangesReader:
    return KafkaRangesReader(msgspec.structs.replace(planner._config, **options))


def test_a_topic_that_appears_later_and_matches_is_read_from_its_beginning(
    kafka: LiveStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_NEW_TOPICS_S", 0.0)
    planner = KafkaRangesReader(config(kafka, patterns=("sensor-[a-z]+",)))
    assert latest(planner, {}) == {}

    create_topics(kafka.bootstrap, [TopicSpec(name="sensor-late", partitions=1)])
    produce(kafka, "sensor-late", 1, 2)

    end = latest(planner, {})
    _, row = rows(planner)
    assert end == {"sensor-late": {"0": 2}}
    assert row[:3] == (7, 0, 0)
    create_topics(kafka.bootstrap, [TopicSpec(name="sensor-wide", partitions=2)])
    with pytest.raises(KafkaTopicError, match="'sensor-wide', which a pattern matches, has 2 partitions"):
        latest(planner, end)


def test_records_wait_for_the_other_topic_of_their_task(kafka: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = kafka.topic("left"), kafka.topic("right")
    produce(kafka, left, 1, 5, 9)
    passed_s, ticks_s = [0.0], clock.ticks_s
    monkeypatch.setattr(clock, "ticks_s", lambda: ticks_s() + passed_s[0])
    planner = KafkaRangesReader(config(kafka, left, right, max_task_idle_ms=60_000))
    start: Offsets = {left: {"0": 0}, right: {"0": 0}}

    assert latest(planner, start) == start
    produce(kafka, right, 6)
    behind: Offsets = {left: {"0": 2}, right: {"0": 1}}
    assert latest(planner, start) == behind
    assert latest(planner, behind) == behind
    passed_s[0] += 60
    assert latest(planner, behind) == {left: {"0": 3}, right: {"0": 1}}


def test_who_only_catches_up_waits_for_nothing(kafka: LiveStack) -> None:
    left, right = kafka.topic("caught-left"), kafka.topic("caught-right")
    produce(kafka, left, 1, 5, 9)
    planner = KafkaRangesReader(config(kafka, left, right, max_task_idle_ms=60_000))

    planner.prepareForTriggerAvailableNow()

    assert latest(planner, {left: {"0": 0}, right: {"0": 0}}) == {left: {"0": 3}, right: {"0": 0}}


def test_what_is_written_to_a_global_table_makes_a_batch_and_is_read_by_no_task(kafka: LiveStack) -> None:
    stream, whole = kafka.topic("stream"), kafka.topic("whole")
    planner = KafkaRangesReader(config(kafka, stream, global_topics=(whole,)))
    start = begin(planner)
    produce(kafka, whole, 1)

    end = latest(planner, start)

    assert end == {stream: {"0": 0}, whole: {"0": 1}}
    assert len(rows(planner)) == 1
