"""How ranges are asked for: a `consume` that asks for more than there is waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from deltaworks.errors import KafkaReadError, RecordsGoneError
from deltaworks.kafka.ranges import Range
from deltaworks.runtime import consumer
from deltaworks.runtime.consumer import RangeReader


@dataclass(frozen=True)
class Delivered:
    """A record, or where a partition ends."""

    of: str
    at: int
    is_end: bool = False

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b""


@dataclass(frozen=True)
class Partitions:
    """What the broker says of a topic."""

    partitions: tuple[int, ...]
    error: KafkaError | None = None


@dataclass(frozen=True)
class Failed:
    """An event that is no record."""

    of: str
    code: int

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(self.code)


class GoneBroker:
    """One that has only the offsets from `low` to `high` of the topic `a`, or no such topic."""

    def __init__(self, low: int, high: int, *, answer: int | None, there: bool = True) -> None:
        self._bounds, self._answer, self._there = (low, high), answer, there
        self.asked = 0

    def assign(self, partitions: Sequence[TopicPartition]) -> None: ...

    def unassign(self) -> None: ...

    def consume(self, count: int, timeout_s: float) -> list[Failed]:
        return [] if self._answer is None else [Failed("a", self._answer)]

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        found = Partitions((0,)) if self._there else Partitions((), unknown)
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        return self._bounds


class Broker:
    """Topics with one partition each; it delivers their records in portions, and notes when a reader had to wait."""

    def __init__(self, topics: dict[str, list[Delivered]], portion: int) -> None:
        self.topics, self.portion, self.waits = topics, portion, 0
        self._coming: list[Delivered] = []

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._coming = [m for p in partitions for m in self.topics[p.topic] if m.at >= p.offset]

    def unassign(self) -> None:
        self._coming = []

    def consume(self, count: int, timeout_s: float) -> list[Delivered]:
        delivered, self._coming = self._coming[: min(count, self.portion)], self._coming[min(count, self.portion) :]
        self.waits += len(delivered) < count and not self._coming
        return delivered


def records(topic: str, *offsets: int) -> list[Delivered]:
    return [Delivered(topic, offset) for offset in offsets]


def read(monkeypatch: pytest.MonkeyPatch, broker: Broker | GoneBroker, *ranges: Range) -> dict[str, list[int]]:
    monkeypatch.setattr(consumer, "Consumer", lambda config: broker)
    found: dict[str, list[int]] = {}
    for portion in RangeReader("").read(ranges):
        for batch in portion:
            found.setdefault(batch.topic, []).extend(batch.offsets)
    return found


@pytest.mark.parametrize("portion", [1, 3, 2_000])
def test_nothing_is_waited_for_that_a_batch_does_not_read(monkeypatch: pytest.MonkeyPatch, portion: int) -> None:
    broker = Broker({"a": records("a", *range(5)), "b": records("b", *range(7))}, portion)

    assert read(monkeypatch, broker, Range("a", 0, 2, 5)) == {"a": [2, 3, 4]}
    assert read(monkeypatch, broker, Range("a", 0, 2, 5), Range("b", 0, 0, 7)) == {"a": [2, 3, 4], "b": [*range(7)]}
    assert broker.waits == 0


@pytest.mark.parametrize("portion", [1, 3, 2_000])
def test_the_ends_of_transactions_are_offsets_without_a_record(monkeypatch: pytest.MonkeyPatch, portion: int) -> None:
    a = [*records("a", 0, 1, 3, 4), Delivered("a", 6, is_end=True)]
    b = [*records("b", 0, 2), Delivered("b", 4, is_end=True)]
    broker = Broker({"a": a, "b": b}, portion)

    assert read(monkeypatch, broker, Range("a", 0, 0, 6)) == {"a": [0, 1, 3, 4]}
    assert read(monkeypatch, broker, Range("a", 0, 1, 6), Range("b", 0, 0, 4)) == {"a": [1, 3, 4], "b": [0, 2]}


def test_what_comes_behind_a_range_is_not_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker({"a": records("a", *range(9)), "b": records("b", *range(9))}, 4)

    assert read(monkeypatch, broker, Range("a", 0, 0, 3)) == {"a": [0, 1, 2]}
    assert read(monkeypatch, broker, Range("a", 0, 0, 3), Range("b", 0, 4, 6)) == {"a": [0, 1, 2], "b": [4, 5]}


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (5, 9, r"a-0 \[2, 7\).*has the offsets 5 to 8 now; .* removed the offsets 2 to 4"),
        (20, 30, r"a-0 \[2, 7\).*has the offsets 20 to 29 now; .* removed the offsets 2 to 6"),
        (0, 3, r"a-0 \[2, 7\).*has the offsets 0 to 2 now; the log is shorter than it was"),
    ],
)
def test_records_that_are_gone_are_no_reason_to_try_again(
    monkeypatch: pytest.MonkeyPatch, low: int, high: int, says: str
) -> None:
    for code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        with pytest.raises(RecordsGoneError, match=says):
            read(monkeypatch, GoneBroker(low, high, answer=code), Range("a", 0, 2, 7))


def test_a_topic_that_was_deleted_is_noticed_though_the_broker_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_DOUBTFUL_S", 0.0)
    for answer in (None, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
        with pytest.raises(RecordsGoneError, match=r"a-0 \[2, 7\).*the partition no longer exists"):
            read(monkeypatch, GoneBroker(0, 9, answer=answer, there=False), Range("a", 0, 2, 7))


def test_a_broker_that_says_nothing_of_records_that_are_there_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_DOUBTFUL_S", 0.0)
    monkeypatch.setattr(consumer, "_STALL_S", 0.01)
    broker = GoneBroker(0, 9, answer=None)

    with pytest.raises(KafkaReadError, match="no records"):
        read(monkeypatch, broker, Range("a", 0, 2, 7))

    assert broker.asked
