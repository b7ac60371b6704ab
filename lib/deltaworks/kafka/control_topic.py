"""The control topic of a pipeline: who may run it, and the markers of its tasks.

Partition 0 has the claims of lineages (`control/lineage.py`). Each task has its own partition after that for its
markers. A reader of committed records stops at the first open transaction *of a partition*, so a task's markers can be
read without waiting for the open transactions of other tasks.

The markers of other senders (`Sender`) are in topics of their own, so that no process that is not the stream has a
transaction open here.

The topics are compacted, so they keep the last record of a key, however long a stream is stopped. A marker is a record
in the transaction of its batch; its key identifies the task, or what is sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import NewPartitions

from deltaworks import formats
from deltaworks.clock import ticks_s
from deltaworks.config import Kafka
from deltaworks.errors import KafkaReadError, KafkaTopicError
from deltaworks.kafka.admin import SILENT, TopicSpec, admin, create_topics, partition_counts_of, wait_for
from deltaworks.kafka.clients import make

FORMAT = 1
LINEAGE_PARTITION = 0
_FIRST_WINDOW, _WIDER = 16, 16
"""The number of offsets before the end that the first search covers, and the factor for the next one."""
_POLL_S = 0.01
_TIMEOUT_S = 30.0
_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",  # the smallest that brokers allow; the last segment is never cleaned
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "60000",
    "retention.ms": "-1",
}
"""Small segments: a task writes about 200 bytes per batch, and a stock broker keeps two segments of it."""

_ANSWER_S = 5.0
_PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_CACHE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
_MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._NOENT,
)
TaskId = tuple[int, int]
"""Stage and task."""
Sender = Literal["corrections", "resends"]
"""Who sends records of a pipeline besides its stream: `control/corrections.py`, `control/resends.py`."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The last batch whose records a task has committed."""

    format: int = FORMAT
    batch: int
    intent: str
    """Digest of the batch's intent (`control/intents.py`)."""


@dataclass(frozen=True)
class Found:
    """A record of the control topic."""

    value: bytes
    offset: int


@dataclass(frozen=True)
class MarkerPlace:
    """The location of a task's markers."""

    topic: str
    partition: int
    key: bytes


def control_topic(pipeline: str) -> str:
    """The name of the topic; like Kafka's own topics, it matches no subscription pattern."""
    return f"__deltaworks-{pipeline}-control"


def specification(pipeline: str, partitions: int = LINEAGE_PARTITION + 1) -> TopicSpec:
    """The topic as it is created; it gets more partitions when tasks need them."""
    return TopicSpec(name=control_topic(pipeline), partitions=partitions, replication=-1, config=_CONFIG)


def markers_topic(pipeline: str, sender: Sender) -> str:
    """The name of the topic with the markers of a sender that is not the stream."""
    return f"__deltaworks-{pipeline}-{sender}"


def own_topics(pipeline: str) -> tuple[str, ...]:
    """The topics that only deltaworks reads."""
    return control_topic(pipeline), *(markers_topic(pipeline, sender) for sender in get_args(Sender))


def markers_specification(pipeline: str, sender: Sender) -> TopicSpec:
    """That topic as it is created."""
    return TopicSpec(name=markers_topic(pipeline, sender), partitions=1, replication=-1, config=_CONFIG)


def markers_place(pipeline: str, sender: Sender, name: str) -> MarkerPlace:
    """The location of a sender's markers.

    Args:
        pipeline: name of the pipeline.
        sender: who sends.
        name: of what is numbered by the markers.
    """
    return MarkerPlace(markers_topic(pipeline, sender), 0, name.encode())


def place_of(pipeline: str, query: str, tasks: Sequence[int], task: TaskId) -> MarkerPlace:
    """The location of a task's markers.

    Args:
        pipeline: name of the pipeline.
        query: identity of the checkpoint; in another one, the same batch ids are other batches.
        tasks: number of tasks per stage.
        task: the task.
    """
    stage, number = task
    partition = LINEAGE_PARTITION + 1 + sum(tasks[:stage]) + number
    return MarkerPlace(control_topic(pipeline), partition, f"{query}/{stage}-{number}".encode())


def prepare(bootstrap: Kafka, pipeline: str, tasks: Sequence[int]) -> None:
    """Creates the topic or adds partitions; the driver calls this before the first task runs.

    Args:
        bootstrap: the cluster.
        pipeline: name of the pipeline.
        tasks: number of tasks per stage.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: the topic cannot be created, or is not compacted.
    """
    name, wanted = control_topic(pipeline), LINEAGE_PARTITION + 1 + sum(tasks)
    client = admin(bootstrap)
    found = partition_counts_of(client).get(name)
    if found is None:
        create_topics(bootstrap, [specification(pipeline, wanted)])
    elif found < wanted:
        try:
            client.create_partitions([NewPartitions(name, wanted)], operation_timeout=_TIMEOUT_S)[name].result()
            wait_for(client, {name: wanted})
        except KafkaException as error:
            raise KafkaTopicError(f"Topic '{name}' cannot get {wanted} partitions: {error.args[0].str()}.") from error


def encode(marker: Marker) -> bytes:
    """The value of a marker's record."""
    return msgspec.json.encode(marker)


def read_markers(bootstrap: Kafka, pipeline: str, query: str, tasks: Sequence[int]) -> dict[TaskId, Marker]:
    """The last committed marker of each task, without waiting for open transactions.

    A worker that is about to commit may add one at any moment. `transactional.settled_markers` ends open transactions
    and returns the final markers.

    Args:
        bootstrap: the cluster.
        pipeline: name of the pipeline.
        query: identity of the checkpoint.
        tasks: number of tasks per stage.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: there is no control topic.
    """
    consumer = reader(bootstrap)
    found: dict[TaskId, Marker] = {}
    try:
        for stage, count in enumerate(tasks):
            for number in range(count):
                marker = newest_marker(consumer, place_of(pipeline, query, tasks, (stage, number)), settled=False)
                if marker is not None:
                    found[stage, number] = marker
    finally:
        consumer.close()
    return found


def newest_marker(consumer: Consumer, place: MarkerPlace, *, settled: bool = True) -> Marker | None:
    """The last committed marker; None if there is none.

    Args:
        consumer: a consumer from `reader`.
        place: location of the task's markers.
        settled: wait until no transaction is open on the partition; the caller has ended those of the task itself.

    Raises:
        KafkaReadError: the broker does not answer, or a transaction stays open.
        KafkaTopicError: the topic or partition does not exist.
        IncompatibleCheckpointError: another version of deltaworks wrote it.
    """
    found = newest(consumer, place.topic, place.partition, place.key, settled=settled)
    return (
        None
        if found is None
        else formats.decode(found.value, Marker, FORMAT, f"The marker {place.key.decode()} in {place.topic}")
    )


def newest(consumer: Consumer, topic: str, partition: int, key: bytes, *, settled: bool = True) -> Found | None:
    """The last committed record of a key, searched backwards from the end; raises like `newest_marker`."""
    deadline = ticks_s() + _TIMEOUT_S
    at = f"{topic}-{partition}"
    low, high = _bounds(consumer, topic, partition)
    window = _FIRST_WINDOW
    try:
        while True:
            start = max(low, high - window)
            consumer.assign([TopicPartition(topic, partition, start)])
            last: Found | None = None
            for message in _to_the_end(consumer, at, deadline, settled=settled):
                if message.key() == key:
                    last = Found(message.value() or b"", int(message.offset() or 0))
            if last is not None:
                return last
            if start <= low:
                return None
            window *= _WIDER
    finally:
        consumer.unassign()


def reader(bootstrap: Kafka, **options: object) -> Consumer:
    """A consumer of committed records that reports the end of a partition and joins no group."""
    return make(
        Consumer,
        bootstrap,
        {
            "group.id": "deltaworks-control",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.error.backoff.ms": 20,
            "fetch.wait.max.ms": 1,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 1_000,
            "enable.metrics.push": False,
            "log_level": 0,
            "logger": SILENT,
            **options,
        },
    )


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the offset at which a reader of committed records has to stop."""
    began = ticks_s()
    while True:
        try:
            bounds = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            patience_s = _ANSWER_S if reason.code() in _MISSING else _TIMEOUT_S
            if ticks_s() < began + patience_s and (reason.retriable() or reason.code() in _PASSING):
                time.sleep(_POLL_S)
                continue
            if reason.code() in _MISSING:
                raise KafkaTopicError(
                    f"There is no partition {topic}-{partition}.",
                    hint="the driver creates it when it starts. If it was deleted, the commits of tasks are unknown; "
                    "restart the stream, which says whether it can go on",
                ) from error
            raise KafkaReadError(
                f"The broker does not say where {topic}-{partition} ends: {reason.str()}.",
                hint="is it running? `deltaworks status`",
            ) from error
        return int(bounds[0]), int(bounds[1])


def _to_the_end(consumer: Consumer, at: str, deadline: float, *, settled: bool) -> Iterator[Message]:
    """The committed records of the assigned partition."""
    stuck: int | None = None
    while True:
        message = consumer.poll(_POLL_S)
        if message is not None:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                if not settled or _is_settled(consumer, message):
                    return
                stuck = message.offset()
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaReadError(f"{at} cannot be read: {error.str()}.")
        if ticks_s() > deadline:
            if stuck is None:
                raise KafkaReadError(
                    f"{at} was not read to its end within {_TIMEOUT_S:.0f} s.",
                    hint="is the broker running? `deltaworks status`",
                )
            topic, _, partition = at.rpartition("-")
            raise KafkaReadError(
                f"A transaction on {at} stays open at offset {stuck}, although its producer is gone: its broker was "
                "killed and has forgotten it.",
                hint=f"end it: kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {topic} "
                f"--partition {partition} --start-offset {stuck}; then the batch runs again",
            )


def _is_settled(consumer: Consumer, end: Message) -> bool:
    """Whether only the ends of transactions follow the last committed record."""
    topic, partition, offset = end.topic(), end.partition(), end.offset()
    assert topic is not None and partition is not None and offset is not None
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)
    return offset >= int(high)
