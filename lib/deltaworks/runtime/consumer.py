"""Reads the offset ranges of a batch inside the task, so that records go from Kafka to the kernel without a detour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from deltaworks.clock import ticks_s
from deltaworks.config import Kafka
from deltaworks.errors import KafkaReadError, RecordsGoneError
from deltaworks.kafka.clients import make
from deltaworks.kafka.ranges import Range
from deltaworks.kernel.records import Headers, RecordBatch

_CHUNK_RECORDS = 2_000
"""Small enough to stay in the processor's cache: 15-30 % less CPU than 10,000."""
_POLL_S = 0.01
"""How long `consume` waits for as many records as it was asked for. A range has fewer if a transaction ended in it."""
_STALL_S = 60.0
_DOUBTFUL_S = 2.0
"""After so long without records, the reader asks whether the topics still exist."""
_ANSWER_S = 5.0

_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_NO_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)


class RangeReader:
    """The consumer of one task, kept in its worker process from batch to batch.

    Ranges are read with `read_committed`. Between batches nothing is assigned: the next batch of this task may run in
    another worker, and prefetched records would be wasted.

    Args:
        bootstrap: the cluster.
        pipeline: name of the pipeline, as commands take it.
    """

    def __init__(self, bootstrap: Kafka, pipeline: str = "NAME") -> None:
        self._bootstrap, self._pipeline = bootstrap, pipeline
        self._consumer = make(
            Consumer,
            bootstrap,
            {
                "group.id": "deltaworks-task",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.error.backoff.ms": 20,
                "fetch.queue.backoff.ms": 1,  # the default sleeps a second once the local queue is full
                "fetch.wait.max.ms": 10,  # the records are already there; the broker would wait for later ones
                "queued.min.messages": 20_000,
                "log_level": 0,
            },
        )

    def read(self, ranges: Sequence[Range]) -> Iterator[list[RecordBatch]]:
        """The records of the ranges, in portions that the task may process one after the other.

        A single range arrives in portions while the rest is still being fetched (no cut changes its order). Several
        ranges arrive at once, because the order contract merges them by the timestamps of their heads.

        Raises:
            RecordsGoneError: the log begins or ends elsewhere, or the topic no longer exists.
            KafkaReadError: the broker did not answer for 60 s.
        """
        wanted = [r for r in ranges if r.stop > r.start]
        self._consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in wanted])
        if len(wanted) == 1:
            for messages in self._one(wanted[0]):
                yield [_columns(wanted[0], messages)]
        elif wanted:
            yield self._several(wanted)
        self._consumer.unassign()

    def beginning(self, topic: str, partition: int) -> int:
        """The first offset in the log.

        Raises:
            KafkaReadError: the broker did not answer for 60 s.
        """
        try:
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_STALL_S)
        except KafkaException as error:
            raise KafkaReadError(
                f"no answer from {self._bootstrap} where {topic}-{partition} begins: {error}",
                hint="check that the broker runs (deltaworks status) and that the topic still exists",
            ) from error
        return int(low)

    def _one(self, wanted: Range) -> Iterator[list[Message]]:
        """Portions of one range; work is done per portion rather than per message."""
        complete, next_offset = False, wanted.start
        while not complete:
            delivered = self._consume(wanted.stop - next_offset, [wanted])
            messages = [message for message in delivered if message.error() is None]
            if len(messages) < len(delivered):
                complete = any(self._ends(message, wanted) for message in delivered if message.error() is not None)
            if messages:
                next_offset = _offset(messages[-1]) + 1
                if next_offset >= wanted.stop:
                    complete = True
                    messages = (
                        [m for m in messages if _offset(m) < wanted.stop] if next_offset > wanted.stop else messages
                    )
                yield messages

    def _several(self, ranges: Sequence[Range]) -> list[RecordBatch]:
        """All records of several ranges."""
        wanted = {(r.topic, r.partition): r for r in ranges}
        found: dict[tuple[str, int], list[Message]] = {key: [] for key in wanted}
        left = dict(wanted)
        while left:
            missing = sum(r.stop - r.start - len(found[key]) for key, r in left.items())
            for message in self._consume(missing, list(left.values())):
                key: tuple[str, int] = (message.topic(), message.partition())  # type: ignore[assignment]
                open_range = left.get(key)
                if open_range is None:
                    continue
                if message.error() is None:
                    offset = _offset(message)
                    if offset < open_range.stop:
                        found[key].append(message)
                    if offset >= open_range.stop - 1:
                        del left[key]
                elif self._ends(message, open_range):
                    del left[key]
        return [_columns(wanted[key], messages) for key, messages in found.items() if messages]

    def _consume(self, missing: int, ranges: Sequence[Range]) -> list[Message]:
        """The next messages; raises an error if none arrive for too long."""
        now = ticks_s()
        deadline, doubtful = now + _STALL_S, now + _DOUBTFUL_S
        while True:
            messages = self._consumer.consume(min(_CHUNK_RECORDS, max(missing, 1)), _POLL_S)
            if messages:
                return messages
            now = ticks_s()
            if now > doubtful:
                for each in ranges:
                    self._check_is_there(each)
                doubtful = ticks_s() + _DOUBTFUL_S
            if now > deadline:
                raise KafkaReadError(
                    f"no records from {self._bootstrap} for {_STALL_S:.0f} s while reading "
                    + ", ".join(f"{r.topic}-{r.partition} [{r.start}, {r.stop})" for r in ranges),
                    hint="check that the broker runs (deltaworks status) and that the topics still exist",
                )

    def _ends(self, message: Message, wanted: Range) -> bool:
        """Whether an event that is not a record completes the range, whose last offsets may be ends of transactions."""
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            return _offset(message) >= wanted.stop
        if error.code() in _PASSING or error.retriable():
            return False  # the consumer reconnects by itself
        if error.code() in (*_OUT_OF_RANGE, *_NO_TOPIC):
            self._check_is_there(wanted)
        raise KafkaReadError(
            f"{wanted.topic}-{wanted.partition} [{wanted.start}, {wanted.stop}): {error.str()}",
            hint="see the broker's log (`deltaworks logs kafka`)",
        )

    def _check_is_there(self, wanted: Range) -> None:
        """Raises `RecordsGoneError` if a range can no longer be read; does nothing if the broker does not answer."""
        where = f"{wanted.topic}-{wanted.partition} [{wanted.start}, {wanted.stop})"
        try:
            topic = self._consumer.list_topics(wanted.topic, timeout=_ANSWER_S).topics[wanted.topic]
            if (topic.error is not None and topic.error.code() in _NO_TOPIC) or (
                topic.error is None and topic.partitions and wanted.partition not in topic.partitions
            ):
                raise RecordsGoneError(
                    f"{where} cannot be read: the partition no longer exists. The topic was deleted or recreated.",
                    hint=self._ways_out(f"--new-topic {wanted.topic}"),
                )
            at = TopicPartition(wanted.topic, wanted.partition)
            low, high = self._consumer.get_watermark_offsets(at, timeout=_ANSWER_S)
        except KafkaException:
            return
        if low <= wanted.start and wanted.stop <= high:
            return
        if wanted.start < low:
            gone = f"retention or somebody has removed the offsets {wanted.start} to {min(low, wanted.stop) - 1}"
            option = "--lost-records"
        else:
            gone = "the log is shorter than it was: the topic was recreated, or its broker has lost records"
            option = f"--new-topic {wanted.topic}"
        raise RecordsGoneError(
            f"{where} cannot be read: the partition has the offsets {low} to {high - 1} now; {gone}.",
            hint=self._ways_out(option),
        )

    def _ways_out(self, option: str) -> str:
        return (
            f"to go on without them: deltaworks accept {self._pipeline} {option}; or begin with a new checkpoint. "
            "If an archive has them (Pipeline(archive=True)), a stream reads them there"
        )

    def close(self) -> None:
        self._consumer.close()


def _columns(wanted: Range, messages: list[Message]) -> RecordBatch:
    headers = [m.headers() for m in messages]
    return RecordBatch(
        wanted.topic,
        wanted.partition,
        [m.offset() for m in messages],  # type: ignore[misc]  # None only without a position
        [m.timestamp()[1] for m in messages],
        [m.key() for m in messages],
        [m.value() for m in messages],
        [_headers(h) for h in headers] if any(headers) else None,
    )


def _offset(message: Message) -> int:
    return message.offset()  # type: ignore[return-value]  # None only without a position


def _headers(headers: object) -> Headers:
    return tuple(headers) if headers else ()  # type: ignore[arg-type]
