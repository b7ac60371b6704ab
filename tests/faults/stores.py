"""The stream's record of its batches, run again in one process and compared byte for byte with what the stream left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from deltaworks.control import batches
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.errors import dead_letter_record
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.kernel.task import TASK_STORE
from deltaworks.settings import Settings
from deltaworks.spark.consumer import RangeReader
from deltaworks.spark.local_store import LocalStore
from deltaworks.spark.protocol import local_path
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded
from tests.live_stack import read_all

OutputRecord = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp, headers."""


@dataclass(frozen=True)
class StoreDifference:
    """An entry of a task's store that is not what the recorded batches give."""

    stage: int
    task: int
    store: str
    key: bytes
    found: bytes | None
    expected: bytes | None


def replay(settings: Settings, pipeline: Pipeline) -> Recording:
    """Runs the recorded micro-batches of a pipeline through the in-process host."""
    plan = pipeline.plan()
    reader = RangeReader(settings.bootstrap)
    micro_batches: list[MicroBatch] = []
    for record in batches.read(settings.pipeline(pipeline.name) / "batches"):
        while len(micro_batches) < record.batch:
            micro_batches.append(MicroBatch(record.wall_clock_ms, ()))
        ranges = [
            Range(topic, int(partition), start, stop)
            for topic, partitions in record.offsets.items()
            for partition, (start, stop) in partitions.items()
        ]
        micro_batches.append(
            MicroBatch(record.wall_clock_ms, _joined([p for part in reader.read(ranges) for p in part]), record.tick)
        )
    reader.close()
    partitions = {topic.name: topic.partitions for topic in pipeline.topics}
    read = {topic: partitions[topic] for topic in plan.source_topics}
    return run_recorded(
        plan,
        read,
        micro_batches,
        errors=pipeline.errors,
        idle_timeout=pipeline.idle_timeout,
        sink_partitions=partitions,
    )


def compare_stores(settings: Settings, pipeline: Pipeline | None = None) -> list[StoreDifference]:
    """Every entry of every local store against the replay; the stream must not run."""
    pipeline = pipeline or _orders()
    recording, differences = replay(settings, pipeline), []
    plan = pipeline.plan()
    for (stage, task), expected in recording.stores.items():
        timed = {spec.name: spec.timed for spec in plan.stages[stage].stores} | {TASK_STORE: False}
        path = local_path(PipelinePaths.of(settings, pipeline.name).local, stage, task)
        local = LocalStore(path, timed)
        for store in timed:
            wanted, found = dict(expected.get(store, [])), dict(local.reader(store).scan(b"", None))
            differences += [
                StoreDifference(stage, task, store, key, found.get(key), wanted.get(key))
                for key in sorted(wanted.keys() | found.keys())
                if found.get(key) != wanted.get(key)
            ]
        local.close()
    return differences


def compare_topics(settings: Settings, pipeline: Pipeline, recording: Recording) -> dict[str, tuple[int, int, int]]:
    """Per output topic: records found, records expected, keys whose sequence of records differs."""
    result = {}
    plan = pipeline.plan()
    topics = [*plan.sink_topics, *([pipeline.dead_letter_topic] if pipeline.dead_letter_topic else [])]
    for topic in topics:
        found = read_committed(settings.bootstrap, topic)
        if topic == pipeline.dead_letter_topic:
            expected = _dead_letters(recording)
        else:
            expected = [(r.key, r.value, r.timestamp_ms, r.headers) for r in recording.topic(topic)]
        found_by_key, expected_by_key = _by_key(found), _by_key(expected)
        differ = [k for k in found_by_key.keys() | expected_by_key.keys() if found_by_key[k] != expected_by_key[k]]
        result[topic] = (len(found), len(expected), len(differ))
    return result


def read_committed(bootstrap: str, topic: str) -> list[OutputRecord]:
    """Everything that a `read_committed` consumer sees, partition by partition."""
    return [
        (message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))  # type: ignore[arg-type]
        for message in read_all(bootstrap, topic)
    ]


def _joined(parts: Sequence[RecordBatch]) -> tuple[RecordBatch, ...]:
    """One batch per topic-partition: the reader hands a single range over in portions."""
    joined: dict[tuple[str, int], RecordBatch] = {}
    for part in parts:
        whole = joined.get((part.topic, part.partition))
        if whole is None:
            joined[part.topic, part.partition] = part
            continue
        headers = None
        if whole.headers is not None or part.headers is not None:
            headers = [*(whole.headers or [()] * len(whole.keys)), *(part.headers or [()] * len(part.keys))]
        joined[part.topic, part.partition] = RecordBatch(
            part.topic, part.partition, whole.offsets + part.offsets, whole.timestamps_ms + part.timestamps_ms,
            whole.keys + part.keys, whole.values + part.values, headers,
        )  # fmt: skip
    return tuple(joined.values())


def _dead_letters(recording: Recording) -> list[OutputRecord]:
    letters = [letter for task in sorted(recording.tasks) for letter in recording.tasks[task].dead_letters]
    records = [(dead_letter_record(letter), letter.timestamp_ms) for letter in letters]
    return [(key, value, timestamp_ms, headers) for (key, value, headers), timestamp_ms in records]


def _by_key(records: Sequence[OutputRecord]) -> dict[bytes | None, list[OutputRecord]]:
    by_key: dict[bytes | None, list[OutputRecord]] = defaultdict(list)
    for record in records:
        by_key[record[0]].append(record)
    return by_key


def _orders() -> Pipeline:
    from jobs.orders import pipeline

    return pipeline
