"""What a task is told of records that are no longer there, by a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer, TopicPartition

from deltaworks.errors import RecordsGoneError
from deltaworks.kafka import admin
from deltaworks.kafka.ranges import Range
from deltaworks.runtime.consumer import RangeReader
from tests.support.live_stack import LiveStack


def filled(kafka: LiveStack, count: int) -> str:
    topic = kafka.topic("gone")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    return topic


def read(kafka: LiveStack, wanted: Range) -> int:
    reader = RangeReader(kafka.bootstrap)
    try:
        return sum(len(batch.offsets) for portion in reader.read([wanted]) for batch in portion)
    finally:
        reader.close()


def test_retention_that_has_passed_the_offset(kafka: LiveStack) -> None:
    topic = filled(kafka, 10)
    client = admin.admin(kafka.bootstrap)
    for removed in client.delete_records([TopicPartition(topic, 0, 4)]).values():
        removed.result()

    assert read(kafka, Range(topic, 0, 4, 10)) == 6
    with pytest.raises(RecordsGoneError, match=rf"{topic}-0 \[2, 10\).*offsets 4 to 9 now.*removed the offsets 2 to 3"):
        read(kafka, Range(topic, 0, 2, 10))


def test_a_log_that_is_shorter_than_it_was(kafka: LiveStack) -> None:
    topic = filled(kafka, 5)

    with pytest.raises(RecordsGoneError, match="offsets 0 to 4 now; the log is shorter than it was"):
        read(kafka, Range(topic, 0, 7, 9))
    with pytest.raises(RecordsGoneError, match="offsets 0 to 4 now; the log is shorter than it was"):
        read(kafka, Range(topic, 0, 3, 9))


def test_a_topic_that_is_gone(kafka: LiveStack) -> None:
    topic = filled(kafka, 5)
    admin.delete_topics(kafka.bootstrap, [topic])

    with pytest.raises(RecordsGoneError, match="the partition no longer exists"):
        read(kafka, Range(topic, 0, 0, 5))


def test_a_topic_that_goes_while_it_is_read(kafka: LiveStack) -> None:
    topic = filled(kafka, 20_000)
    reader = RangeReader(kafka.bootstrap)
    portions = reader.read([Range(topic, 0, 0, 30_000)])
    next(portions)
    admin.delete_topics(kafka.bootstrap, [topic])

    with pytest.raises(RecordsGoneError):
        list(portions)
    reader.close()
