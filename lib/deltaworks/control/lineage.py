"""The owner of a pipeline's name on a Kafka: two homes on one Kafka must not both write everything.

A *lineage* is the identity of a stream over all its checkpoints, homes and hosts, made with the first one. It stands
in partition 0 of the pipeline's control topic, beside the markers: each start of a driver claims the pipeline there.
Another lineage is refused, unless somebody takes over on purpose. The same lineage may have moved to another home or
host: the later start wins, and the earlier driver finds out at its next batch (`Watch`).

A claim is a transaction with one transactional id for all starts of a pipeline, so if two start at the same moment, one
fails. Lease and fence, not this module, keep the processes of one home apart.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import uuid
from datetime import UTC, datetime

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from deltaworks import formats
from deltaworks.clock import ticks_s, wall_ms
from deltaworks.config import Kafka
from deltaworks.errors import FencedError, KafkaWriteError, LineageError
from deltaworks.kafka.admin import SILENT, admin, topic_ids
from deltaworks.kafka.clients import make
from deltaworks.kafka.connection import close_quietly
from deltaworks.kafka.control_topic import LINEAGE_PARTITION, control_topic, newest, reader

FORMAT = 1
_KEY = b"lineage"
_TIMEOUT_S = 30.0
_TRANSACTION_MS = 60_000
_FIRST_ANSWER_S = 0.02
_ATTEMPTS = 3
_FENCED = (KafkaError.PRODUCER_FENCED, KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of a driver that starts."""

    format: int = FORMAT
    lineage: str
    incarnation: str
    """Id of this start."""
    generation: int
    home: str
    host: str
    pid: int
    at_ms: int

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.at_ms / 1_000, UTC).isoformat(" ", "seconds")
        return f"{self.home} on {self.host} (pid {self.pid}, generation {self.generation}, since {since})"


def new_incarnation() -> str:
    """An identity for one start of a driver."""
    return secrets.token_hex(8)


def owner(bootstrap: Kafka, pipeline: str) -> Claim | None:
    """The newest claim; None if nobody has claimed the pipeline yet.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: the pipeline has no control topic.
    """
    with contextlib.closing(reader(bootstrap)) as consumer:
        found = newest(consumer, control_topic(pipeline), LINEAGE_PARTITION, _KEY)
    return None if found is None else _decode(pipeline, found.value)


def identity(bootstrap: Kafka, pipeline: str, home: str) -> str:
    """The lineage of a stream without a checkpoint: its home's earlier one if it starts over, otherwise a new one.

    Raises:
        KafkaReadError: the broker does not answer.
    """
    before = owner(bootstrap, pipeline)
    here = before is not None and (before.home, before.host) == (home, socket.gethostname())
    return before.lineage if before is not None and here else new_lineage()


def require_ours(bootstrap: Kafka, pipeline: str, lineage: str | None, home: str) -> None:
    """Checks before a driver starts that it will not be refused; claims nothing.

    Args:
        bootstrap: the cluster.
        pipeline: name of the pipeline.
        lineage: lineage of the checkpoint; None: there is none yet.
        home: folder of the home.

    Raises:
        LineageError: another lineage has the pipeline.
        KafkaReadError: the broker does not answer.
    """
    if not topic_ids(admin(bootstrap), [control_topic(pipeline)]):
        return
    before = owner(bootstrap, pipeline)
    if before is None:
        return
    here = (before.home, before.host) == (home, socket.gethostname()) if lineage is None else before.lineage == lineage
    if not here:
        raise _of_another(bootstrap, pipeline, before)


def new_lineage() -> str:
    """An identity for a new stream."""
    return uuid.uuid4().hex[:12]


def claim(
    bootstrap: Kafka,
    pipeline: str,
    lineage: str,
    incarnation: str,
    *,
    generation: int,
    home: str,
    take_over: bool = False,
) -> Claim:
    """Claims the pipeline for this start of a driver; the previous driver is fenced.

    Args:
        bootstrap: the cluster; the control topic exists (`control_topic.prepare`).
        pipeline: name of the pipeline.
        lineage: lineage of the checkpoint.
        incarnation: id of this start (`new_incarnation`).
        generation: generation of the driver.
        home: folder of the home.
        take_over: also replace another lineage.

    Returns:
        The claim.

    Raises:
        LineageError: another lineage has the pipeline.
        FencedError: another driver starts at the same moment.
        KafkaReadError, KafkaWriteError: the broker does not answer.
    """
    mine = Claim(
        lineage=lineage,
        incarnation=incarnation,
        generation=generation,
        home=home,
        host=socket.gethostname(),
        pid=os.getpid(),
        at_ms=wall_ms(),
    )
    for attempt in itertools.count(1):
        try:
            _claim(bootstrap, pipeline, mine, take_over=take_over)
            break
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() != KafkaError.UNKNOWN or attempt == _ATTEMPTS:
                raise _failure(pipeline, bootstrap, reason) from error
    return mine


def _claim(bootstrap: Kafka, pipeline: str, mine: Claim, *, take_over: bool) -> None:
    """Writes the claim; raises `KafkaException`. After an unknown error the claim may hold or not; repeat it.

    A broker answers with an unknown error if another producer of the same id starts while this one commits.
    """
    topic = control_topic(pipeline)
    producer = _producer(bootstrap, topic)
    try:
        _begin(producer)
        before = owner(bootstrap, pipeline)  # nobody can claim between this and our transaction without fencing it
        if before is not None and before.lineage != mine.lineage and not take_over:
            raise _of_another(bootstrap, pipeline, before)
        producer.begin_transaction()
        producer.produce(topic, msgspec.json.encode(mine), _KEY, LINEAGE_PARTITION)
        producer.commit_transaction(_TIMEOUT_S)
    finally:
        close_quietly(producer)


class Watch:
    """Tells a driver that a later one has claimed its pipeline.

    Args:
        bootstrap: the cluster.
        pipeline: name of the pipeline.
        mine: the claim of this driver.

    Raises:
        KafkaReadError: the broker does not answer.
    """

    def __init__(self, bootstrap: Kafka, pipeline: str, mine: Claim) -> None:
        self._pipeline, self._mine = pipeline, mine
        with contextlib.closing(reader(bootstrap)) as consumer:
            found = newest(consumer, control_topic(pipeline), LINEAGE_PARTITION, _KEY)
        self._newest = mine if found is None else _decode(pipeline, found.value)
        behind = 0 if found is None else found.offset + 1
        self._consumer = reader(bootstrap, **{"fetch.wait.max.ms": 500})
        self._consumer.assign([TopicPartition(control_topic(pipeline), LINEAGE_PARTITION, behind)])

    def check(self) -> None:
        """Checks without waiting: a very recent claim may show only at the next call.

        Raises:
            FencedError: a later driver has claimed the pipeline.
        """
        for message in self._consumer.consume(100, 0):
            if message.error() is None and (value := message.value()) is not None:
                self._newest = _decode(self._pipeline, value)
        if self._newest.incarnation != self._mine.incarnation:
            raise FencedError(
                f"Another driver has claimed pipeline '{self._pipeline}': {self._newest}. This one is {self._mine}.",
                hint="a stream runs in one place; stop the other one first if this is where it should run",
            )

    def close(self) -> None:
        self._consumer.close()


def _producer(bootstrap: Kafka, topic: str) -> Producer:
    return make(
        Producer,
        bootstrap,
        {
            "transactional.id": f"{topic}-lineage",
            "transaction.timeout.ms": _TRANSACTION_MS,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 1_000,
            "enable.metrics.push": False,
            "log_level": 0,
            "logger": SILENT,
        },
    )


def _begin(producer: Producer) -> None:
    """Fences any other driver that is about to claim; retries often at first, see `TransactionalSink`."""
    deadline, wait_s = ticks_s() + _TIMEOUT_S, _FIRST_ANSWER_S
    while True:
        try:
            return producer.init_transactions(wait_s)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if not (reason.retriable() or reason.code() == KafkaError._TIMED_OUT) or ticks_s() > deadline:
                raise
        wait_s = min(wait_s * 2, 5.0)


def _of_another(bootstrap: Kafka, pipeline: str, owner: Claim) -> LineageError:
    return LineageError(
        f"Pipeline '{pipeline}' at {bootstrap} belongs to another stream: {owner}. "
        "If both ran, everything would be written twice.",
        hint="run it from that home or a copy of it, which goes on where it stopped; or give this pipeline "
        f"another name; or, if that home no longer exists, use deltaworks run {pipeline} --take-over (or deploy "
        "--take-over). This home then goes on from its own checkpoint or starts a new one, and writes everything "
        "after that again, unless it starts at the end (--start-offsets latest)",
    )


def _failure(pipeline: str, bootstrap: Kafka, reason: KafkaError) -> FencedError | KafkaWriteError:
    if reason.code() in _FENCED:
        return FencedError(
            f"Another driver of pipeline '{pipeline}' starts at the same moment.",
            hint="only one is needed; `deltaworks status` shows where it runs",
        )
    return KafkaWriteError(
        f"Pipeline '{pipeline}' cannot be claimed at {bootstrap}: {reason.name()}, {reason.str()}.",
        hint="is the broker running? `deltaworks status`",
    )


def _decode(pipeline: str, value: bytes) -> Claim:
    return formats.decode(value, Claim, FORMAT, f"The claim on pipeline '{pipeline}' in its control topic")
