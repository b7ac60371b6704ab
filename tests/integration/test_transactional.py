"""The transactional sink against a real broker."""

from __future__ import annotations

import gc
import os
import signal
import time
import weakref
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from deltaworks import faults
from deltaworks.errors import (
    BatchTooLongError,
    IntentError,
    KafkaTopicError,
    KafkaWriteError,
    StreamsError,
)
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import Marker, control_topic, newest_marker, place_of, prepare, reader
from deltaworks.kafka.transactional import TransactionalSink, application, settled_markers
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.sizes import record_size
from tests.support.live_stack import LiveStack, await_restart, settled_end_offsets

TASKS = (2, 1)


class Held:
    """What a caller has in its frame."""


def sink(kafka: LiveStack, topic: str, *, task: int = 0, timeout_ms: int = 600_000) -> TransactionalSink:
    """Of a pipeline with the name of its topic."""
    prepare(kafka.bootstrap, topic, TASKS)
    place = place_of(topic, "q", TASKS, (0, task))
    app = application(topic, "q")
    return TransactionalSink(kafka.bootstrap, app, 0, task, place, transaction_timeout_ms=timeout_ms)


def write(to: TransactionalSink, batch_id: int, topic: str, *values: bytes, intent: str = "", known: int = -1) -> bool:
    if not to.begin(batch_id, intent, known):
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
    assert not write(sink(kafka, topic), 0, topic, b"a", known=1)
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


def test_what_is_in_reach_when_a_sink_is_fenced_is_let_go(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    one, two = sink(kafka, topic), sink(kafka, topic)
    seen: list[weakref.ref[Held]] = []

    def write_from(to: TransactionalSink, batch_id: int) -> None:
        held = Held()
        seen.append(weakref.ref(held))
        assert write(to, batch_id, topic, b"x")

    for batch_id in range(8):
        write_from((one, two)[batch_id % 2], batch_id)
    gc.collect()
    assert [ref() for ref in seen] == [None] * 8


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


@pytest.mark.parametrize("worker", ["the same", "another"])
@pytest.mark.parametrize("point", ["kafka.after_begin", "kafka.before_marker", "kafka.before_commit"])
def test_a_failure_before_the_commit_writes_nothing(kafka: LiveStack, point: str, worker: str) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    with fail_at(point), pytest.raises(InjectedError):
        write(to, 0, topic, b"a")

    again = to if worker == "the same" else sink(kafka, topic)
    assert write(again, 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_a_failure_after_the_commit_does_not_write_twice(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)
    with fail_at("kafka.after_commit"), pytest.raises(InjectedError):
        write(to, 0, topic, b"a")

    assert not write(to, 0, topic, b"a")
    assert not write(sink(kafka, topic), 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_a_record_that_the_broker_refuses_ends_the_stream_and_not_for_later(kafka: LiveStack) -> None:
    topic = kafka.topic("out", config={"max.message.bytes": "2000"})
    to = sink(kafka, topic)
    to.begin(0)
    to.send(topic, b"k", b"x" * 3_000, 1, ())

    with pytest.raises(StreamsError, match="MSG_SIZE_TOO_LARGE"):
        to.commit()

    assert write(to, 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


def test_limits_are_those_of_the_topic(kafka: LiveStack) -> None:
    stock, small, large = (
        kafka.topic("out", config=config)
        for config in ({}, {"max.message.bytes": "5000"}, {"max.message.bytes": "3000000"})
    )
    to = sink(kafka, stock)

    assert [to.limit(topic) for topic in (stock, small, large)] == [1_048_588, 5_000, 3_000_000]
    assert [to.limit(topic) for topic in ("nowhere", "no name", "nowhere")] == [None] * 3
    to.begin(0)
    to.send(stock, None, b"x" * (1_048_588 - record_size(None, None, ())), 1)
    to.send(large, None, b"x" * (3_000_000 - record_size(None, None, ())), 1)
    for _ in range(100):
        to.send(small, None, b"x" * 1_000, 1)
    to.commit()
    assert len(values(kafka, stock)) == len(values(kafka, large)) == 1
    assert len(values(kafka, small)) == 100


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


def test_another_intent_under_the_same_id_is_refused(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    write(sink(kafka, topic), 4, topic, b"a", intent="one")

    for to in (sink(kafka, topic), sink(kafka, topic)):
        assert not write(to, 4, topic, b"a", intent="one")
        with pytest.raises(IntentError, match="batch 4 with another intent"):
            write(to, 4, topic, b"b", intent="other")
        with pytest.raises(IntentError, match="batch 4, but batch 3 is next and 3 is the last known one"):
            write(to, 3, topic, b"b", intent="other", known=3)
        assert not write(to, 3, topic, b"b", intent="other", known=4)
    assert write(to, 5, topic, b"c", intent="next")
    assert values(kafka, topic) == [b"a", b"c"]


def test_an_open_transaction_of_another_task_does_not_hide_a_marker(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    other, mine = sink(kafka, topic, task=1), sink(kafka, topic)
    other.begin(7)
    other.send(topic, b"k", b"open", 1)
    write(mine, 7, topic, b"a")

    assert not write(sink(kafka, topic), 7, topic, b"a")
    other.commit()
    consumer = reader(kafka.bootstrap)
    for task in ((0, 0), (0, 1)):
        found = newest_marker(consumer, place_of(topic, "q", TASKS, task), settled=False)
        assert found == Marker(batch=7, intent="")
    consumer.close()


def test_what_is_open_is_ended_before_somebody_decides_what_is_committed(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    zombie = sink(kafka, topic)
    write(zombie, 1, topic, b"a", intent="x")
    zombie.begin(2, "y")
    zombie.send(topic, b"k", b"late", 1)

    assert settled_markers(kafka.bootstrap, topic, "q", TASKS) == {(0, 0): Marker(batch=1, intent="x")}
    with pytest.raises(KafkaWriteError, match="took over"):
        zombie.commit()
    assert values(kafka, topic) == [b"a"]


def test_markers_outlive_consumer_groups_and_compaction(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to, neighbour = sink(kafka, topic), sink(kafka, topic, task=1)
    write(neighbour, 3, topic, b"n", intent="early")
    write(to, 3, topic, b"a", intent="early")
    place = place_of(topic, "q", TASKS, (0, 0))
    fill(kafka, place.topic, place.partition, place.key)
    client = admin.admin(kafka.bootstrap)
    groups = [group.group_id for group in client.list_consumer_groups().result().valid]
    for deleted in client.delete_consumer_groups(groups).values() if groups else ():
        deleted.result()

    assert not write(sink(kafka, topic), 3, topic, b"a", intent="early")
    assert not write(sink(kafka, topic, task=1), 3, topic, b"n", intent="early")
    consumer = reader(kafka.bootstrap)
    assert newest_marker(consumer, place) == Marker(batch=3, intent="early")
    consumer.close()
    assert len(values(kafka, topic)) == 2


def fill(kafka: LiveStack, topic: str, partition: int, key: bytes) -> None:
    """Segments of other keys behind a marker, until the broker has compacted them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for _ in range(1_100):
        producer.produce(topic, b"x" * 4_000, b"someone else's", partition)
    assert producer.flush(30) == 0
    deadline = time.monotonic() + 60  # the broker looks every 15 seconds
    while True:
        found = [m for m in kafka.read(topic) if m.partition() == partition]
        if found[0].key() == key and len(found) < found[-1].offset() // 2:  # type: ignore[operator]
            return
        assert time.monotonic() < deadline, f"not compacted: {len(found)} records"


def test_a_control_topic_that_is_not_there_says_so(kafka: LiveStack) -> None:
    topic = kafka.topic("out")
    to = TransactionalSink(kafka.bootstrap, topic, 0, 0, place_of(f"never-{topic}", "q", TASKS, (0, 0)))

    with pytest.raises(KafkaTopicError, match="There is no partition"):
        to.begin(0)


def test_a_control_topic_gets_partitions_for_more_tasks_and_is_no_topic_of_users(kafka: LiveStack) -> None:
    prepare(kafka.bootstrap, "growing", (1,))
    prepare(kafka.bootstrap, "growing", (3, 2))
    prepare(kafka.bootstrap, "growing", (1,))

    assert (
        admin.topic_states(admin.admin(kafka.bootstrap), [control_topic("growing")])[
            control_topic("growing")
        ].partitions
        == 6
    )
    assert control_topic("growing") not in admin.partition_counts(kafka.bootstrap)


def test_a_batch_longer_than_its_transaction_may_last_says_so(
    kafka: LiveStack, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic, timeout_ms=1_000)
    to.begin(0)
    to.send(topic, b"k", b"slow", 1)
    settled_end_offsets(kafka.bootstrap, [topic], timeout_s=40)  # the broker looks every ten seconds

    with pytest.raises(BatchTooLongError, match="Batch 0 took too long"):
        to.commit()

    assert "the broker ends it after 1 s" in caplog.text
    assert write(to, 0, topic, b"a")
    assert values(kafka, topic) == [b"a"]


@pytest.mark.parametrize("place", ["init", "begin", "send", "commit"])
def test_a_broker_killed_at_any_moment_is_survived_without_loss_or_double(kafka: LiveStack, place: str) -> None:
    topic = kafka.topic("out")
    to = sink(kafka, topic)

    def kill(at: str) -> None:
        if at == place:
            broker = kafka.start("kafka")["kafka"]
            os.kill(broker.pid, signal.SIGKILL)
            await_restart(kafka.settings, "kafka", broker.pid)

    for batch in range(3):
        if batch == 1 and place == "init":
            to.close()
            to = sink(kafka, topic)
            kill("init")
        for attempt in range(2):
            try:
                if to.begin(batch):
                    if (batch, attempt) == (1, 0):
                        kill("begin")
                    to.send(topic, b"k", b"%d" % batch, 1_000)
                    if (batch, attempt) == (1, 0):
                        kill("send")
                        with killed_at("kafka.before_commit", lambda: kill("commit")):
                            to.commit()
                    else:
                        to.commit()
                break
            except KafkaWriteError:  # it was aborted: the batch runs again, as the host does it
                assert attempt == 0
    to.close()

    assert values(kafka, topic) == [b"0", b"1", b"2"]


class killed_at:
    """Does something at a fault point."""

    def __init__(self, point: str, action: Callable[[], None]) -> None:
        self._point, self._action = point, action

    def __enter__(self) -> None:
        faults.arm(lambda point: self._action() if point == self._point else None)

    def __exit__(self, *_: object) -> None:
        faults.arm(None)
