"""Readers of topics: what is new up to the end of now, and a `read_committed` consumer that reads all the time."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition

from deltaworks.kafka import admin
from tests.support.live_stack import settled_end_offsets
from tests.system.soak.models import Message, Row, rows_of_topic
from tests.system.soak.record import Record

_PATIENCE_S = 120.0
_IN_ORDER = ("soak-echo", "soak-priced")
"""Topics in which the entries of an account follow each other without a gap."""


def consumer(bootstrap: str) -> Consumer:
    """One that reads what is committed, where it is told to."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "soak",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def message_of(found: object) -> Message:
    """A record without the client around it."""
    topic, partition, offset = found.topic(), found.partition(), found.offset()  # type: ignore[attr-defined]
    key, value, (_, timestamp_ms) = found.key(), found.value(), found.timestamp()  # type: ignore[attr-defined]
    return Message(topic, partition, offset, key, value, timestamp_ms)


@dataclass
class Tail:
    """What has come since the last look."""

    bootstrap: str
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def read(self, topics: Sequence[str]) -> Iterator[Message]:
        """Up to the ends of now, partition by partition."""
        ends = admin.end_offsets(self.bootstrap, topics)
        for (topic, partition), end in sorted(ends.items()):
            begin = self.next_offsets.get((topic, partition), 0)
            if begin < end:
                yield from self._partition(topic, partition, begin)
                self.next_offsets[topic, partition] = end

    def forget(self, topic: str) -> None:
        """It was recreated."""
        self.next_offsets = {at: end for at, end in self.next_offsets.items() if at[0] != topic}

    def _partition(self, topic: str, partition: int, begin: int) -> Iterator[Message]:
        reader = consumer(self.bootstrap)
        reader.assign([TopicPartition(topic, partition, begin)])
        end = time.monotonic() + _PATIENCE_S
        try:
            while True:
                found = reader.poll(1.0)
                assert time.monotonic() < end, f"the end of {topic} was not reached"
                if found is None:
                    continue
                error = found.error()
                if error is None:
                    yield message_of(found)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
        finally:
            reader.close()


class OutsideConsumer:
    """Reads output topics all the time, and says at once what must not be: a gap, a record again."""

    def __init__(self, bootstrap: str, topics: Sequence[str], record: Record) -> None:
        self.bootstrap, self.topics, self.record = bootstrap, tuple(topics), record
        self.rows: dict[str, Counter[Row]] = {topic: Counter() for topic in topics}
        self._next: dict[tuple[str, int], int] = {}
        self._seqs: dict[tuple[str, str], int] = defaultdict(int)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="consumer")
        self._thread.start()

    @property
    def reads(self) -> int:
        return sum(rows.total() for rows in self.rows.values())

    def catch_up(self) -> None:
        """Until it has read everything that is committed now."""
        ends = settled_end_offsets(self.bootstrap, self.topics)
        end = time.monotonic() + _PATIENCE_S
        while any(self._next.get(at, 0) < offset for at, offset in ends.items()):
            assert time.monotonic() < end, f"the consumer outside does not reach {ends}, it is at {self._next}"
            time.sleep(0.05)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(timeout=20)

    def _run(self) -> None:
        counts = admin.partition_counts(self.bootstrap)
        everything = [TopicPartition(topic, part, 0) for topic in self.topics for part in range(counts[topic])]
        reader = consumer(self.bootstrap)
        reader.assign(everything)
        while not self._closed.is_set():
            found = reader.poll(0.2)
            if found is None:
                continue
            error = found.error()
            if error is None:
                message = message_of(found)
                self._take(message)
                self._next[message.topic, message.partition] = message.offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # behind the markers of transactions
                self._next[str(found.topic()), int(found.partition() or 0)] = int(found.offset() or 0)
        reader.close()

    def _take(self, message: Message) -> None:
        for row in rows_of_topic(message.topic, [message]):
            self.rows[message.topic][row] += 1
            if self.rows[message.topic][row] > 1:
                self.record.failed(f"{message.topic}: {row} came {self.rows[message.topic][row]} times", twice=1)
            if message.topic in _IN_ORDER:
                account, seq = row
                wanted = self._seqs[message.topic, account]
                if seq != wanted:
                    missed = max(0, seq - wanted)
                    self.record.failed(
                        f"{message.topic}: entry {seq} of {account} came, {wanted} was next", lost=missed
                    )
                self._seqs[message.topic, account] = max(wanted, seq + 1)
