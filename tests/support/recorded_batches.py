"""The stream's record of its batches, run again in one process and compared byte for byte with what the stream left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltaworks import Topic
from deltaworks.config import Kafka
from deltaworks.control import batches
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.topics import all_topics
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.errors import dead_letter_record
from deltaworks.kernel.records import Headers, RecordBatch
from deltaworks.runtime.consumer import RangeReader
from deltaworks.runtime.state.initial_state import InitialState, path_of
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path, open_store
from deltaworks.runtime.task_loop import TaskId
from deltaworks.settings import Settings
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded
from tests.support.live_stack import read_all

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
    return _run(pipeline, _recorded(settings, pipeline))


def _recorded(settings: Settings, pipeline: Pipeline) -> list[MicroBatch]:
    reader = RangeReader(settings.cluster)
    micro_batches: list[MicroBatch] = []
    for record in batches.read(PipelinePaths.of(settings, pipeline.name).batches):
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
    return micro_batches


def _run(pipeline: Pipeline, micro_batches: Sequence[MicroBatch]) -> Recording:
    plan = pipeline.plan()
    partitions = {name: Topic(name).partitions for name in all_topics(pipeline, plan)}
    partitions |= {topic.name: topic.partitions for topic in pipeline.topics}
    read = {topic: partitions[topic] for topic in plan.source_topics}
    return run_recorded(
        plan,
        read,
        micro_batches,
        errors=pipeline.errors,
        idle_timeout=pipeline.idle_timeout,
        sink_partitions=partitions,
    )


def compare_stores(
    settings: Settings, pipeline: Pipeline | None = None, *, but: Callable[[StoreDifference], bool] = lambda _: False
) -> list[StoreDifference]:
    """Every entry of every local store against the replay; the stream must not run.

    The last batch of a task may be on its way from Spark's state to the local store: then it is as of the batch before.

    Args:
        settings: where the stream has run.
        pipeline: which one; None: the orders.
        but: the differences that do not count.
    """

    def differences_of(
        task: TaskId, found: Mapping[str, _Entries], expected: Mapping[str, _Entries]
    ) -> list[StoreDifference]:
        return [each for each in _differences(task, found, expected) if not but(each)]

    pipeline = pipeline or _orders()
    micro_batches = _recorded(settings, pipeline)
    recording, differences = _run(pipeline, micro_batches), list[StoreDifference]()
    earlier: dict[int, Recording] = {}
    for task, expected in recording.stores.items():
        found = _contents(settings, pipeline, task)
        different = differences_of(task, found, expected)
        if different:
            last = max(number for number, ran in enumerate(recording.metrics) if task in ran)
            if last not in earlier:
                earlier[last] = _run(pipeline, micro_batches[:last])
            if not differences_of(task, found, earlier[last].stores[task]):
                continue
        differences += different
    return differences


_Entries = list[tuple[bytes, bytes]]


def _contents(settings: Settings, pipeline: Pipeline, task: TaskId) -> dict[str, _Entries]:
    timed, checkpoint = stores_of(pipeline.plan().stages[task[0]]), PipelinePaths.of(settings, pipeline.name).current
    path, initial = local_path(checkpoint.local, *task), path_of(checkpoint.initial_state, *task)
    has_run = path.exists()
    local = LocalStore(path, timed)
    if not has_run and initial.exists():  # no record has come since the checkpoint began
        open_store(local, InitialState(initial))
    found = {store: list(local.reader(store).scan(b"", None)) for store in timed}
    local.close()
    return found


def _differences(
    task: TaskId, found: Mapping[str, _Entries], expected: Mapping[str, _Entries]
) -> list[StoreDifference]:
    differences = []
    for store, entries in found.items():
        there, wanted = dict(entries), dict(expected.get(store, []))
        differences += [
            StoreDifference(*task, store, key, there.get(key), wanted.get(key))
            for key in sorted(wanted.keys() | there.keys())
            if there.get(key) != wanted.get(key)
        ]
    return differences


def compare_topics(settings: Settings, pipeline: Pipeline, recording: Recording) -> dict[str, tuple[int, int, int]]:
    """Per output topic: records found, records expected, keys whose sequence of records differs."""
    result = {}
    plan = pipeline.plan()
    topics = [*plan.sink_topics, *([pipeline.dead_letters.topic] if pipeline.dead_letters.topic else [])]
    for topic in topics:
        found = read_committed(settings.cluster, topic)
        if topic == pipeline.dead_letters.topic:
            expected = _dead_letters(recording)
        else:
            expected = [(r.key, r.value, r.timestamp_ms, r.headers) for r in recording.topic(topic)]
        found_by_key, expected_by_key = _by_key(found), _by_key(expected)
        differ = [k for k in found_by_key.keys() | expected_by_key.keys() if found_by_key[k] != expected_by_key[k]]
        result[topic] = (len(found), len(expected), len(differ))
    return result


def read_committed(bootstrap: Kafka, topic: str) -> list[OutputRecord]:
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
            headers = [*(whole.headers_of_each), *(part.headers_of_each)]
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
