"""Writes the Kafka records of one task, exactly once: one transaction per task and batch.

The batch id + 1 (the *marker*) is committed in the same transaction, as an offset of a consumer group of the task's
own. A batch that runs again reads it and skips what is already there. Consumers see each record once if they read
with `read_committed`.

Two things fence, and only one of them matters: Spark moves tasks between its Python workers, and each worker's
producer fences the one before it. That is normal: a fenced sink takes its task back and reads the marker again.
Therefore the transactional id does not decide between two *drivers*; their lease does.

Marker and records live as long as the broker keeps them: `offsets.retention.minutes` (7 days by default, counted
from the last batch) must be longer than any pause after which a pipeline shall go on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from deltaworks import clock
from deltaworks.errors import KafkaWriteError
from deltaworks.faults import reach
from deltaworks.kernel.partitioning import partition_of

T = TypeVar("T")

_TIMEOUT_S = 60.0
_BEGIN_S, _COMMIT_S, _MARKER_S = 5.0, 20.0, 10.0
_PATIENCE_S = 5.0
"""A client whose broker went away and came back may wait for ever, whatever time it is given (librdkafka issue 5511):
this much later it is abandoned, and a new one takes its place."""
_REMEMBERED_KEYS = 100_000
_QUEUE_WAIT_S = 0.05
_FIRST_ANSWER_S = 0.02
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
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
"""What the admin client does not mark as something to try again."""

_BY_KEY = -1
"""librdkafka's "any partition": its partitioner decides."""


class TransactionalSink:
    """The producer of one task, kept in its worker process from batch to batch.

    Args:
        bootstrap: `host:port[,host:port...]`.
        application: names the run of a pipeline that one checkpoint belongs to; batch ids of another checkpoint
            start anew, so they need another name.
        stage: index of the task's stage.
        task: index of the task within the stage.
        marker_topic: an existing topic, on whose partition 0 the marker is committed; nothing is written to it.
    """

    def __init__(self, bootstrap: str, application: str, stage: int, task: int, marker_topic: str) -> None:
        self._bootstrap = bootstrap
        self._id = f"{application}-{stage}-{task}"
        self._group = f"{self._id}-batches"
        self._marker_topic = marker_topic
        self._next_batch = 0
        """Lowest batch id that is not committed, as far as this sink knows."""
        self._partitions: dict[str, tuple[int, dict[bytes, int]]] = {}
        """Topic -> number of partitions, and the partition of keys seen so far."""
        self._batch_id = 0
        self._open = False
        self._ready = False
        self._use(_Connection(bootstrap, self._id, self._group))

    def begin(self, batch_id: int) -> bool:
        """Opens the transaction of a batch.

        Returns:
            False if the batch is already committed: its records must not be sent again.

        Raises:
            KafkaWriteError: the broker refuses or does not answer.
        """
        if self._open:
            self.abort()
        deadline, fenced = clock.ticks_s() + _TIMEOUT_S, 0
        while True:
            try:
                if not self._ready:
                    self._take_over()
                if batch_id < self._next_batch:
                    return False
                self._attempt("begin a transaction", self._producer.begin_transaction)
                self._open = True
                self._batch_id = batch_id
                reach("kafka.after_begin")
                reach("kafka.before_marker")
                # First of all, because it is where a fenced producer is told so: before any record is sent in vain.
                self._mark(batch_id)
            except _Fenced as error:
                self._drop()
                fenced += 1
                if fenced > 1:
                    raise KafkaWriteError(
                        f"Another producer took over '{self._id}' twice while batch {batch_id} began.",
                        hint="do two drivers run the same pipeline? `deltaworks status`",
                    ) from error
            except KafkaWriteError:
                self._drop()
                if clock.ticks_s() > deadline:
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
        """Queues a record; its partition is Kafka's murmur2 of the key, as with the Java client.

        Args:
            topic: an existing one.
            key: None is allowed.
            value: None is a tombstone.
            timestamp_ms: of the record.
            headers: order and repeated names are kept.
            partition_key: decides the partition in the place of the key.
            partition: in the place of what a key decides.

        Raises:
            KafkaWriteError: it is too large, or the queue stays full; abort the transaction.
        """
        # Zero would mean "now" to the client.
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

    def commit(self) -> None:
        """Makes the records and the marker of the batch visible, all or none.

        Raises:
            KafkaWriteError: the transaction was aborted, or its outcome is unknown; running the batch again is
                right in both cases.
        """
        assert self._open, "commit without begin"
        reach("kafka.before_commit")
        try:
            self._attempt("commit", lambda: self._producer.commit_transaction(_COMMIT_S), _COMMIT_S)
        except KafkaWriteError:
            if not self._open:
                raise  # it was aborted
            self._find_out()
        except _Fenced as error:
            self._drop()
            raise KafkaWriteError(
                f"Another producer took over '{self._id}' during batch {self._batch_id}; this one wrote nothing."
            ) from error
        self._open = False
        self._next_batch = self._batch_id + 1
        reach("kafka.after_commit")

    def _find_out(self) -> None:
        """The answer to a commit did not come: a new producer ends the transaction one way or the other.

        Raises:
            KafkaWriteError: it was aborted.
        """
        self._drop()
        try:
            self._take_over()
        except _Fenced as error:
            raise KafkaWriteError(f"Another producer took over '{self._id}' at the same moment.") from error
        if self._next_batch <= self._batch_id:
            raise KafkaWriteError(
                f"The broker did not answer the commit of batch {self._batch_id} by '{self._id}'; it was aborted.",
                hint="the batch runs again; see the broker's log (`deltaworks logs kafka`) if this repeats",
            )

    def abort(self) -> None:
        """Drops the records of the batch. Never raises: a producer that cannot abort is dropped itself."""
        if not self._open:
            return
        self._open = False
        try:
            self._producer.abort_transaction(_BEGIN_S)
        except KafkaException:
            self._drop()

    def close(self) -> None:
        """Aborts what is open and closes the connection; the sink cannot be used again."""
        self.abort()
        self._connection.close()

    def _use(self, connection: _Connection) -> None:
        self._connection = connection
        self._producer = connection.producer
        self._produce = connection.producer.produce
        self._ready = False

    def _take_over(self) -> None:
        """Fences whoever had the task before, which ends its open transaction, and reads the marker."""
        try:
            self._producer.list_topics(self._marker_topic, timeout=_TIMEOUT_S)
            self._attempt("start transactions", self._init_transactions)
            self._next_batch = self._read_marker()
        except KafkaException as error:
            raise self._failure("connect", error) from error
        self._ready = True

    def _init_transactions(self) -> None:
        """Asks often at first: a producer that misses the moment at which its coordinator is connected looks again
        only after half a second, unless it is asked."""
        wait_s = _FIRST_ANSWER_S
        while True:
            try:
                return self._producer.init_transactions(wait_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or wait_s > _TIMEOUT_S:
                    raise
            wait_s *= 2

    def _read_marker(self) -> int:
        """Waits for a transaction that is being ended. (The admin client's way to it crashes on a loading broker.)"""

        def ask() -> int:
            found = self._connection.consumer.committed([TopicPartition(self._marker_topic, 0)], timeout=_MARKER_S)[0]
            if found.error is not None:
                raise KafkaException(found.error)
            return int(found.offset)

        return max(0, self._attempt("read the marker", ask, _MARKER_S))

    def _mark(self, batch_id: int) -> None:
        """Puts the marker into the transaction."""
        marker = [TopicPartition(self._marker_topic, 0, batch_id + 1)]
        self._attempt(
            "write the marker",
            lambda: self._producer.send_offsets_to_transaction(marker, self._connection.membership, _BEGIN_S),
            _BEGIN_S,
        )

    def _send_when_there_is_room(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        deadline = clock.ticks_s() + _TIMEOUT_S
        while True:
            self._producer.poll(_QUEUE_WAIT_S)
            try:
                self._produce(topic, value, key, partition, None, None, timestamp_ms, list(headers))
                return
            except BufferError as error:
                if clock.ticks_s() > deadline:
                    raise KafkaWriteError(
                        f"The queue of '{self._id}' stays full: the broker took nothing for {_TIMEOUT_S:.0f} s.",
                        hint="is it running, and has it disk space? `deltaworks status`",
                    ) from error
            except KafkaException as error:
                raise self._failure(f"send a record to '{topic}'", error) from error

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            KafkaWriteError: there is no such topic, or the broker does not answer.
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
                    f"'{self._id}' writes to the topic '{topic}', which does not exist.",
                    hint="create it, or list it in the pipeline's `topics`",
                )
            known = self._partitions[topic] = count, {}
        return known

    def _partition(self, topic: str, key: bytes) -> int:
        """Remembered per key, because murmur2 in Python costs more than all the rest of `send`."""
        count, by_key = self._known(topic)
        partition = by_key.get(key)
        if partition is None:
            if len(by_key) >= _REMEMBERED_KEYS:
                by_key.clear()
            partition = by_key[key] = partition_of(key, count)
        return partition

    def _attempt(self, what: str, action: Callable[[], T], timeout_s: float = _TIMEOUT_S) -> T:
        """Tries again what may be tried again; ends the transaction where the broker wants it ended."""
        deadline = clock.ticks_s() + timeout_s
        while True:
            try:
                return _in_time(action, timeout_s + _PATIENCE_S)
            except TimeoutError:
                self._use(_Connection(self._bootstrap, self._id, self._group))
                raise KafkaWriteError(f"The client of '{self._id}' hangs: it does not {what}.") from None
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() in _FENCED:
                    raise _Fenced(reason.str()) from error
                passing = reason.retriable() or reason.code() in _PASSING
                if passing and not reason.txn_requires_abort() and clock.ticks_s() < deadline:
                    self._producer.poll(_QUEUE_WAIT_S)
                    continue
                raise self._failure(what, error) from error

    def _failure(self, what: str, error: KafkaException) -> KafkaWriteError:
        reason: KafkaError = error.args[0]
        if self._open and reason.txn_requires_abort():
            self.abort()
        elif reason.fatal():
            self._drop()
        return KafkaWriteError(
            f"'{self._id}' cannot {what} (batch {self._batch_id}): {reason.name()}, {reason.str()}",
            hint="the batch runs again; see the broker's log (`deltaworks logs kafka`) if this repeats",
        )

    def _drop(self) -> None:
        self._open = False
        with contextlib.suppress(TimeoutError):
            _in_time(self._connection.close, _PATIENCE_S)
        self._use(_Connection(self._bootstrap, self._id, self._group))


class _Connection:
    """A producer that has not claimed its transactional id yet, and what reads and describes the marker's group.

    Connects in the background, while the task reads and computes.
    """

    def __init__(self, bootstrap: str, transactional_id: str, group: str) -> None:
        client = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 500,
            "enable.metrics.push": False,
            "log_level": 0,
            "logger": _SILENT,
        }
        self.consumer = Consumer({**client, "group.id": group})
        """Never joins its group."""
        self.membership = self.consumer.consumer_group_metadata()
        self.producer = Producer(
            {
                **client,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 600_000,
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
            }
        )

    def close(self) -> None:
        """Forgets what is queued."""
        self.producer.purge()
        with contextlib.suppress(KafkaException):  # a fenced one says so once more
            self.producer.close()
        self.consumer.close()


def _in_time(action: Callable[[], T], timeout_s: float) -> T:
    """Does something that may hang; raises `TimeoutError` and leaves it to itself then."""
    outcome: Future[T] = Future()

    def call() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome.result(timeout_s)


class _Fenced(Exception):
    """Another producer has the transactional id now."""


_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
