"""The transactional sink against a real broker."""

from __future__ import annotations

import os
import signal

import pytest
from confluent_kafka import Producer

from deltaworks import faults
from deltaworks.errors import KafkaWriteError
from deltaworks.kafka.transactional import TransactionalSink
from deltaworks.kernel.partitioning import partition_of
from tests.live_stack import LiveStack, await_restart


def sink(kafka: LiveStack, topic: str, *, task: int = 0) -> TransactionalSink:
    return TransactionalSink(kafka.bootstrap, f"app-{topic}", 0, task, topic)


def write(to: TransactionalSink, batch_id: int, topic: str, *values: bytes) -> bool:
    if not to.begin(batch_id):
        return False
    for value in values:
        to.send(topic, b"k", value, 1_000, ())
    to.commit()
    return True


def values(kafka: LiveStack, topic: str) -> list[bytes | None]:
    return [message.value() for message in kafka.read(topic)]


def test_a_committed_batch_is_visible_with_key_time_and_headers(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)

    assert to.begin(0)
    to.send(topic, b"k", b"v", 1_700_000_000_000, (("h", b"1"), ("h", None)))
    to.send(topic, b"k", None, 5, ())
    to.commit()

    first, second = kafka.read(topic)
    assert (first.key(), first.value(), first.timestamp()) == (b"k", b"v", (1, 1_700_000_000_000))
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert (second.value(), second.timestamp(), second.headers()) == (None, (1, 5), None)


def test_partitions_follow_kafkas_murmur2_of_the_key(kafka: LiveStack) -> None:
    topic = kafka.topic("out", partitions=5)
    to = sink(kafka, topic)

    to.begin(0)
    for number in range(200):
        to.send(topic, b"user-%d" % number, b"", 1, ())
    to.commit()

    for message in kafka.read(topic):
        assert message.partition() == partition_of(message.key() or b"", 5)


def test_a_batch_that_runs_again_is_recognised_by_the_same_sink_and_by_a_new_one(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    write(to, 0, topic, b"a")
    write(to, 1, topic, b"b")

    assert not write(to, 1, topic, b"b")
    assert not write(sink(kafka, topic), 1, topic, b"b")
    assert not write(sink(kafka, topic), 0, topic, b"a")
    assert write(sink(kafka, topic), 2, topic, b"c")
    assert values(kafka, topic) == [b"a", b"b", b"c"]


def test_an_aborted_batch_leaves_nothing_and_can_be_written_again(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    to.begin(0)
    to.send(topic, b"k", b"dropped", 1, ())
    to.abort()

    assert write(to, 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_a_batch_left_open_by_a_failed_attempt_is_aborted_by_the_next_begin(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    to.begin(0)
    to.send(topic, b"k", b"dropped", 1, ())

    assert write(to, 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_a_transaction_of_a_dead_worker_is_ended_by_the_next_one(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    dead = sink(kafka, topic)
    dead.begin(0)
    dead.send(topic, b"k", b"dropped", 1, ())
    dead._producer.flush(10)

    assert write(sink(kafka, topic), 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_tasks_may_wander_between_workers(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    here, there = sink(kafka, topic), sink(kafka, topic)
    expected = [b"%d" % batch_id for batch_id in range(8)]

    for batch_id in range(8):
        worker = here if batch_id % 3 else there
        assert write(worker, batch_id, topic, expected[batch_id])
        assert not write(there if worker is here else here, batch_id, topic, b"again")

    assert values(kafka, topic) == expected


def test_a_worker_that_lost_its_task_in_the_middle_of_a_batch_cannot_commit(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    slow, fast = sink(kafka, topic), sink(kafka, topic)
    slow.begin(0)
    slow.send(topic, b"k", b"slow", 1, ())

    assert write(fast, 0, topic, b"fast")
    with pytest.raises(KafkaWriteError):
        slow.commit()

    assert not slow.begin(0)
    assert values(kafka, topic) == [b"fast"]


def test_tasks_of_one_application_do_not_disturb_each_other(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    first, second = sink(kafka, topic, task=0), sink(kafka, topic, task=1)
    first.begin(3)
    second.begin(3)
    first.send(topic, b"k", b"first", 1, ())
    second.send(topic, b"k", b"second", 1, ())
    second.commit()
    first.commit()

    assert sorted(values(kafka, topic)) == [b"first", b"second"]  # type: ignore[type-var]


@pytest.mark.parametrize("point", ["kafka.after_begin", "kafka.before_marker", "kafka.before_commit"])
def test_a_failure_before_the_commit_writes_nothing(kafka: LiveStack, point: str) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    with fail_at(point), pytest.raises(InjectedError):
        write(to, 0, topic, b"a")

    assert write(to, 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_a_failure_after_the_commit_does_not_write_twice(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    with fail_at("kafka.after_commit"), pytest.raises(InjectedError):
        write(to, 0, topic, b"a")

    assert not write(to, 0, topic, b"a")
    assert not write(sink(kafka, topic), 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_a_marker_outside_the_transaction_would_lose_records(kafka: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker must be part of the transaction; this shows that the tests above would notice."""
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    other = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"other-{topic}", "log_level": 0})
    other.init_transactions(30)

    def outside(batch_id: int) -> None:
        mine, to._producer = to._producer, other
        other.begin_transaction()
        TransactionalSink._mark(to, batch_id)
        other.commit_transaction(30)
        to._producer = mine

    monkeypatch.setattr(to, "_mark", outside)
    with fail_at("kafka.before_commit"), pytest.raises(InjectedError):
        write(to, 0, topic, b"a")

    assert not write(sink(kafka, topic), 0, topic, b"a")
    assert values(kafka, topic) == []


def test_a_record_that_is_too_large_says_so(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    to.begin(0)

    with pytest.raises(KafkaWriteError, match="MSG_SIZE_TOO_LARGE"):
        to.send(topic, b"k", b"x" * 2_000_000, 1, ())

    to.abort()
    assert write(to, 0, topic, b"a")


def test_more_records_than_the_queue_holds_are_all_written(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    count = 150_000

    to.begin(0)
    for number in range(count):
        to.send(topic, b"%d" % number, b"x" * 1_000, 1, ())
    to.commit()

    assert [message.key() for message in kafka.read(topic)] == [b"%d" % number for number in range(count)]


class InjectedError(Exception):
    """What a fault point raises here."""


class fail_at:
    """Arms one fault point."""

    def __init__(self, point: str) -> None:
        self._point = point

    def __enter__(self) -> None:
        def hook(point: str) -> None:
            if point == self._point:
                raise InjectedError(point)

        faults.arm(hook)

    def __exit__(self, *_: object) -> None:
        faults.arm(None)


def test_a_broker_killed_in_the_middle_of_a_batch_is_survived_without_loss_or_double(kafka: LiveStack) -> None:
    out = kafka.topic("out")
    sink = TransactionalSink(kafka.bootstrap, "survivor", 0, 0, out)
    for batch in range(3):
        assert sink.begin(batch)
        sink.send(out, b"k", b"%d" % batch, 1_000)
        if batch == 1:
            broker = kafka.start("kafka")["kafka"]
            os.kill(broker.pid, signal.SIGKILL)
            await_restart(kafka.settings, "kafka", broker.pid)
        try:
            sink.commit()
        except KafkaWriteError:  # it was aborted: the batch runs again, as the host does it
            assert sink.begin(batch)
            sink.send(out, b"k", b"%d" % batch, 1_000)
            sink.commit()
    sink.close()

    assert [message.value() for message in kafka.read(out)] == [b"0", b"1", b"2"]
