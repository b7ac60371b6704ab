"""Writes the Kafka records of one task, exactly once: one transaction per task and batch.

A marker (the batch, and the digest of its intent) is a record of the same transaction, in the pipeline's control topic
(`control_topic.py`). A batch that runs again reads it and skips what is already there. Consumers with
`read_committed` see each record once.

Spark moves tasks between its Python workers, and each worker's producer fences the previous one. That is normal: a
fenced sink takes its task back and reads the marker again. So the transactional id does not decide between two
*drivers*; their lease and lineage do.

Markers do not expire, however long a stream is stopped.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException

from deltaworks.clock import ticks_s
from deltaworks.config import Kafka
from deltaworks.errors import (
    BatchTooLongError,
    DeltaworksError,
    IntentError,
    KafkaReadError,
    KafkaWriteError,
    StreamsError,
)
from deltaworks.faults import reach
from deltaworks.kafka.connection import BATCH_BYTES, PATIENCE_S, Connection, in_time, told
from deltaworks.kafka.control_topic import Marker, MarkerPlace, TaskId, encode, newest_marker, place_of
from deltaworks.kafka.limits import TopicLimits
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.sizes import record_size

T = TypeVar("T")
_log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 600_000
"""Stock brokers allow up to 900,000 (`transaction.max.timeout.ms`); see `admin.transaction_timeout_ms`."""
_TIMEOUT_S = 60.0
_BEGIN_S, _COMMIT_S = 5.0, 20.0
_REMEMBERED_KEYS = 100_000
_QUEUE_WAIT_S = 0.05
_FIRST_ANSWER_S = 0.02
_LOOKS_AT_THE_CLOCK = 10_000
"""Number of records between two looks at the clock."""
_FENCED = (
    KafkaError.PRODUCER_FENCED,
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)
_PASSING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
"""Passing errors that the client does not mark as retriable."""
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_REQUIRED_ACKS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
"""Errors that the same records would cause again."""
_BY_KEY = -1
"""librdkafka's "any partition": its partitioner decides."""


class TransactionalSink:
    """The producer of one task, kept in its worker process from batch to batch.

    Args:
        bootstrap: the cluster.
        application: name of the pipeline and checkpoint; batch ids start again in another checkpoint, so it needs
            another name.
        stage: index of the task's stage.
        task: index of the task within the stage.
        place: place of the task's markers, in an existing control topic.
        limits: limits of the written topics; shared by the tasks of a process.
        transaction_timeout_ms: time after which the broker ends a transaction.
    """

    def __init__(
        self,
        bootstrap: Kafka,
        application: str,
        stage: int,
        task: int,
        place: MarkerPlace,
        *,
        limits: TopicLimits | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._bootstrap = bootstrap
        self._id = f"{application}-{stage}-{task}"
        self._place = place
        self._limits = TopicLimits(bootstrap) if limits is None else limits
        self._timeout_ms = transaction_timeout_ms
        self._marker: Marker | None = None
        """The marker of the last committed batch, as far as this sink knows."""
        self._partitions: dict[str, tuple[int, dict[bytes, int]]] = {}
        """Topic -> number of partitions, and the partition of keys seen so far."""
        self._tight: dict[str, int] = {}
        """Topic whose limit is below the client's batch size -> bytes that are queued for it."""
        self._batch_id, self._intent = 0, ""
        self._open = False
        self._ready = False
        self._began_s = 0.0
        self._sent = 0
        self._warned = False
        self._use(self._connect())

    def begin(self, batch_id: int, intent: str = "", known: int = -1) -> bool:
        """Opens the transaction of a batch.

        Args:
            batch_id: id of the batch.
            intent: digest of the batch's intent.
            known: the last batch that is known to be committed with this stream's intent.

        Returns:
            False if the batch is already committed; its records must not be sent again.

        Raises:
            IntentError: another intent is committed under the batch's id, or an unknown batch is committed.
            KafkaWriteError: the broker refuses or does not answer.
        """
        if self._open:
            self.abort()
        deadline, fenced = ticks_s() + _TIMEOUT_S, 0
        while True:
            try:
                if not self._ready:
                    self._take_over()
                if is_committed(self._marker, batch_id, intent, known, self._id):
                    return False
                self._attempt("begin a transaction", self._producer.begin_transaction)
                self._open = True
                self._batch_id, self._intent = batch_id, intent
                self._began_s, self._sent, self._warned = ticks_s(), 0, False
                self._connection.refused.clear()
                reach("kafka.after_begin")
                reach("kafka.before_marker")
                # The marker goes first: here a fenced producer learns that it is, before it sends any record in vain.
                self._mark()
            except _Fenced as error:
                self._drop()
                fenced += 1
                if fenced > 1:
                    raise KafkaWriteError(
                        f"Another producer took over '{self._id}' twice while batch {batch_id} began.",
                        hint="do two drivers run the same pipeline? See `deltaworks status`",
                    ) from error
            except KafkaWriteError:
                self._drop()
                if ticks_s() > deadline:
                    raise
            else:
                return True

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        partition_key: bytes | None = None,
        partition: int | None = None,
    ) -> None:
        """Queues a record; its partition follows from murmur2 of the key, as in the Java client.

        Args:
            topic: an existing topic; the record is not larger than its `limit`.
            key: key, may be None.
            value: value; None is a tombstone.
            timestamp_ms: timestamp of the record.
            headers: headers; order and repeated names are kept.
            partition_key: decides the partition instead of the key.
            partition: the partition, instead of the one that a key decides.

        Raises:
            StreamsError: the record is refused, and would be again.
            KafkaWriteError: the queue stays full; abort the transaction.
            BatchTooLongError: the broker has ended the transaction.
        """
        self._sent += 1
        if not self._sent % _LOOKS_AT_THE_CLOCK:
            self._look_at_the_clock()
        if topic in self._tight:
            self._make_room(topic, record_size(key, value, headers))
        # The client would take zero as "now".
        timestamp_ms = timestamp_ms or 1
        if partition is None:
            partition = _BY_KEY if partition_key is None else self._partition(topic, partition_key)
        try:
            if headers:
                self._produce(topic, value, key, partition, None, None, timestamp_ms, list(headers))
            else:
                self._produce(topic, value, key, partition, None, None, timestamp_ms)
        except BufferError:
            self._send_when_there_is_room(topic, key, value, partition, timestamp_ms, headers)
        except KafkaException as error:
            raise self._failure(f"send a record to '{topic}'", error) from error

    def limit(self, topic: str) -> int | None:
        """The maximum size of a record, as `record_size` counts it; None if the topic does not exist.

        Raises:
            KafkaWriteError: the broker does not answer.
        """
        limit = self._limits.of(topic)
        if limit is not None and limit < BATCH_BYTES:
            self._tight.setdefault(topic, 0)
        return limit

    def commit(self) -> None:
        """Makes the records and the marker of the batch visible, all or none.

        Raises:
            StreamsError: the broker refused a record, and would refuse it again; the transaction was aborted.
            BatchTooLongError: the broker has ended the transaction; nothing is written.
            KafkaWriteError: the transaction was aborted or its outcome is unknown; in both cases, run the batch again.
        """
        assert self._open, "commit without begin"
        self._look_at_the_clock()
        reach("kafka.before_commit")
        try:
            self._attempt("commit", lambda: self._producer.commit_transaction(_COMMIT_S), _COMMIT_S)
        except KafkaWriteError:
            if not self._open:
                raise  # it was aborted
            self._find_out()
        except _Fenced as error:
            too_long = self._too_long()
            self._drop()
            if too_long is not None:
                raise too_long from error
            raise KafkaWriteError(
                f"Another producer took over '{self._id}' during batch {self._batch_id}; this one wrote nothing."
            ) from error
        self._open = False
        self._marker = Marker(batch=self._batch_id, intent=self._intent)
        reach("kafka.after_commit")

    def _find_out(self) -> None:
        """Finds out how a commit without an answer ended: a new producer ends the transaction one way or the other.

        Raises:
            KafkaWriteError: the transaction was aborted.
        """
        self._drop()
        try:
            self._take_over()
        except _Fenced as error:
            raise KafkaWriteError(f"Another producer took over '{self._id}' at the same moment.") from error
        if self._marker is None or self._marker.batch < self._batch_id:
            raise KafkaWriteError(
                f"The broker did not answer the commit of batch {self._batch_id} by '{self._id}'; it was aborted.",
                hint="the batch runs again; see the broker's log (`deltaworks logs kafka`) if this repeats",
            )

    def abort(self) -> None:
        """Drops the records of the batch. It never raises: a producer that cannot abort is dropped."""
        if not self._open:
            return
        self._open = False
        self._connection.refused.clear()
        try:
            in_time(lambda: self._producer.abort_transaction(_BEGIN_S), _BEGIN_S + PATIENCE_S)
        except (KafkaException, SystemError, TimeoutError):
            self._drop()

    def close(self) -> None:
        """Aborts an open transaction and closes the connection; the sink cannot be used again."""
        self.abort()
        self._connection.close()

    def committed(self) -> Marker | None:
        """The final marker of the last committed batch: earlier producers of the task can no longer commit.

        Raises:
            KafkaWriteError: the broker does not answer.
        """
        try:
            self._take_over()
        except _Fenced as error:
            raise KafkaWriteError(f"Another producer took over '{self._id}' at the same moment.") from error
        return self._marker

    def _connect(self) -> Connection:
        return Connection(self._bootstrap, self._id, self._timeout_ms)

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self._producer = connection.producer
        self._produce = connection.producer.produce
        self._ready = False

    def _take_over(self) -> None:
        """Fences the previous producer of the task, which ends its open transaction, and reads the marker.

        Then no transaction is open on the task's partition, so nothing hides the marker.
        """
        try:  # a record for a topic that the client does not know yet waits for a tenth of a second
            self._producer.list_topics(self._place.topic, timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._failure("connect", error) from error
        self._attempt("start transactions", self._init_transactions)
        self._marker = self._read_marker()
        self._ready = True

    def _init_transactions(self) -> None:
        """Initialises transactions with short timeouts at first: unless it is called again, a producer that misses the
        moment when its coordinator is connected looks again only after half a second."""
        wait_s = _FIRST_ANSWER_S
        while True:
            try:
                return self._producer.init_transactions(wait_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or wait_s > _TIMEOUT_S:
                    raise
            wait_s *= 2

    def _read_marker(self) -> Marker | None:
        try:
            return newest_marker(self._connection.consumer, self._place)
        except KafkaReadError as error:
            raise KafkaWriteError(error.message, hint=error.hint) from error

    def _mark(self) -> None:
        """Adds the marker to the transaction and waits until the broker has it."""
        place, marker = self._place, encode(Marker(batch=self._batch_id, intent=self._intent))
        self._produce(place.topic, marker, place.key, place.partition)
        # Raises if the producer is fenced; the commit reports a refused marker.
        self._attempt("write the marker", lambda: self._flushed(_BEGIN_S), _BEGIN_S)

    def _make_room(self, topic: str, size: int) -> None:
        """Sends the queued records before the client would batch more of them than the topic accepts."""
        queued = self._tight[topic] + size
        if queued > (self._limits.of(topic) or 0):
            self._attempt("send records", lambda: self._flushed(_TIMEOUT_S))
            queued = size
        self._tight[topic] = queued

    def _flushed(self, timeout_s: float) -> None:
        if self._producer.flush(timeout_s):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker does not take records"))

    def _send_when_there_is_room(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        deadline = ticks_s() + _TIMEOUT_S
        while True:
            self._listen(_QUEUE_WAIT_S)
            try:
                self._produce(topic, value, key, partition, None, None, timestamp_ms, list(headers))
                return
            except BufferError as error:
                if ticks_s() > deadline:
                    raise KafkaWriteError(
                        f"The queue of '{self._id}' stays full: the broker took nothing for {_TIMEOUT_S:.0f} s.",
                        hint="is it running, and does it have disk space? See `deltaworks status`",
                    ) from error
            except KafkaException as error:
                raise self._failure(f"send a record to '{topic}'", error) from error

    def partitions(self, topic: str) -> int:
        """The number of partitions of an existing topic.

        Raises:
            KafkaWriteError: the broker does not answer.
        """
        return self._known(topic)[0]

    def _known(self, topic: str) -> tuple[int, dict[bytes, int]]:
        known = self._partitions.get(topic)
        if known is None:
            try:
                count = len(self._producer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
            except KafkaException as error:
                raise self._failure(f"ask for the partitions of '{topic}'", error) from error
            if not count:
                raise KafkaWriteError(
                    f"'{self._id}' cannot find out how many partitions the topic '{topic}' has.",
                    hint="was it just deleted or created? See the broker's log (`deltaworks logs kafka`)",
                )
            known = self._partitions[topic] = count, {}
        return known

    def _partition(self, topic: str, key: bytes) -> int:
        """The partition of a key, remembered because murmur2 in Python costs more than the rest of `send`."""
        count, by_key = self._known(topic)
        partition = by_key.get(key)
        if partition is None:
            if len(by_key) >= _REMEMBERED_KEYS:
                by_key.clear()
            partition = by_key[key] = partition_of(key, count)
        return partition

    def _attempt(self, what: str, action: Callable[[], T], timeout_s: float = _TIMEOUT_S) -> T:
        """Does something with the producer, retries passing errors, and aborts the transaction if the broker asks."""
        deadline = ticks_s() + timeout_s
        while True:
            try:
                return in_time(lambda: told(action), timeout_s + PATIENCE_S)
            except TimeoutError:
                self._use(self._connect())
                raise KafkaWriteError(
                    f"The client of '{self._id}' hangs: it does not {what}.",
                    hint="a new client replaces it, and the batch runs again; if this repeats, `deltaworks restart`",
                ) from None
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() in _FENCED:
                    raise _Fenced(reason.str()) from error
                passing = reason.retriable() or reason.code() in _PASSING
                if passing and not reason.txn_requires_abort() and ticks_s() < deadline:
                    self._listen(_QUEUE_WAIT_S)
                    continue
                raise self._failure(what, error) from error

    def _failure(self, what: str, error: KafkaException) -> DeltaworksError:
        """Makes the error to raise; ends the transaction if it can no longer be committed."""
        reason: KafkaError = error.args[0]
        too_long = self._too_long() if reason.txn_requires_abort() or reason.fatal() else None
        self._listen(0)
        refused = [(topic, why) for topic, why in self._connection.refused if why.code() in _REFUSED]
        if self._open and (reason.txn_requires_abort() or refused):
            self.abort()
        if reason.fatal() or refused:
            self._drop()  # a producer counts a lost record, and the broker refuses the records after it
        if too_long is not None:
            return too_long
        if refused or reason.code() in _REFUSED:
            topic, why = refused[0] if refused else ("", reason)
            return StreamsError(
                f"The broker refuses a record of batch {self._batch_id} from '{self._id}'"
                f"{f' for topic {topic!r}' if topic else ''}: {why.name()}, {why.str()}",
                hint="it would refuse the record again; check the settings of the topic and who may write to it",
            )
        return KafkaWriteError(
            f"'{self._id}' cannot {what} (batch {self._batch_id}): {reason.name()}, {reason.str()}",
            hint="the batch runs again; see the broker's log (`deltaworks logs kafka`) if this repeats",
        )

    def _listen(self, wait_s: float) -> None:
        """Lets the client report records that were not written."""
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.poll(wait_s)

    def _look_at_the_clock(self) -> None:
        """Warns once, when half of the time is over."""
        open_s = ticks_s() - self._began_s
        if not self._warned and open_s * 2_000 > self._timeout_ms:
            self._warned = True
            _log.warning(
                "The transaction of '%s' for batch %d has been open for %.0f s; the broker ends it after %.0f s.",
                self._id,
                self._batch_id,
                open_s,
                self._timeout_ms / 1_000,
            )

    def _too_long(self) -> BatchTooLongError | None:
        """The error if the broker has ended the open transaction because of its age; None otherwise."""
        open_s = ticks_s() - self._began_s
        if not self._open or open_s * 1_000 < self._timeout_ms:
            return None
        return BatchTooLongError(
            f"Batch {self._batch_id} took too long: the transaction of '{self._id}' was open for {open_s:.0f} s, and "
            f"the broker ends it after {self._timeout_ms / 1_000:.0f} s. None of it is written.",
            hint="use smaller batches (DELTAWORKS_MAX_RECORDS_PER_BATCH) or a higher transaction.max.timeout.ms of the "
            "broker",
        )

    def _drop(self) -> None:
        self._open = False
        with contextlib.suppress(TimeoutError):
            in_time(self._connection.close, PATIENCE_S)
        self._use(self._connect())


class Committed(Protocol):
    """The last committed batch, from a marker in Kafka or from what a sink remembers."""

    @property
    def batch(self) -> int: ...

    @property
    def intent(self) -> str: ...


def is_committed(marker: Committed | None, batch_id: int, intent: str, known: int, who: str) -> bool:
    """Whether an earlier attempt committed a batch, which is then skipped.

    Args:
        marker: marker of the task's last transaction.
        batch_id: id of the batch.
        intent: digest of the batch's intent.
        known: the last batch that is known to be committed with this stream's intent.
        who: names the task in an error.

    Raises:
        IntentError: another intent was committed under the batch's id, or an unknown batch was committed.
    """
    if marker is None or marker.batch < batch_id:
        return False
    if marker.batch == batch_id and marker.intent == intent:
        return True
    if batch_id < marker.batch <= known:
        return True
    what = (
        f"batch {batch_id} with another intent"
        if marker.batch == batch_id
        else f"batch {marker.batch}, but batch {batch_id} is next and {known} is the last known one"
    )
    raise IntentError(
        f"The transactions of '{who}' have committed {what}: its records are in Kafka, and would differ from these.",
        hint="is this a copy of the checkpoint, or a mix of two copies? Restore the newest, or start with a new one",
    )


def settled_markers(
    bootstrap: Kafka, pipeline: str, query: str, tasks: Sequence[int], only: Sequence[TaskId] | None = None
) -> dict[TaskId, Marker]:
    """The final markers of a checkpoint's tasks; this ends open transactions.

    A driver that holds the lease calls this before it decides what to do with a started batch: after this, no worker of
    a dead driver can commit.

    Args:
        bootstrap: the cluster.
        pipeline: name of the pipeline.
        query: identity of the checkpoint.
        tasks: number of tasks per stage.
        only: the tasks of interest; None: all.

    Raises:
        KafkaWriteError: the broker does not answer.
    """
    wanted = [(s, n) for s, count in enumerate(tasks) for n in range(count)] if only is None else only

    def settle(task: TaskId) -> Marker | None:
        place = place_of(pipeline, query, tasks, task)
        with closing(TransactionalSink(bootstrap, application(pipeline, query), *task, place)) as sink:
            return sink.committed()

    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(wanted, pool.map(settle, wanted), strict=True))
    return {task: marker for task, marker in found.items() if marker is not None}


def application(pipeline: str, query: str) -> str:
    """The first part of the transactional ids of a checkpoint's tasks."""
    return f"{pipeline}-{query}"


class _Fenced(Exception):
    """Another producer now has the transactional id."""
