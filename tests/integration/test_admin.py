"""Topics and offsets at a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from deltaworks.errors import KafkaReadError, KafkaTopicError
from deltaworks.kafka import admin
from deltaworks.kafka.admin import TopicSpec
from tests.support.live_stack import LiveStack, settled_end_offsets


def produce(kafka: LiveStack, topic: str, *times_ms: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for time_ms in times_ms:
        producer.produce(topic, b"v", timestamp=time_ms, partition=0)
    assert producer.flush(30) == 0


def test_topics_are_created_once(kafka: LiveStack) -> None:
    spec = TopicSpec(name="created-once", partitions=3, config={"cleanup.policy": "compact"})

    assert admin.create_topics(kafka.bootstrap, [spec]) == ["created-once"]
    assert admin.create_topics(kafka.bootstrap, [spec]) == []
    assert admin.partition_counts(kafka.bootstrap)["created-once"] == 3


def test_what_differs_of_a_topic_is_told_and_not_changed(kafka: LiveStack) -> None:
    made = TopicSpec(name="differing", partitions=2, replication=-1, config={"retention.ms": "60000"})
    wanted = TopicSpec(name="differing", partitions=2, replication=3, config={"retention.ms": "70000", "no.such": "1"})
    admin.create_topics(kafka.bootstrap, [made])

    assert admin.differences(kafka.bootstrap, [made]) == []
    assert admin.create_topics(kafka.bootstrap, [wanted]) == []
    assert admin.differences(kafka.bootstrap, [wanted]) == [
        "topic 'differing' has retention.ms=60000, but the pipeline says 70000",
        "topic 'differing' has no.such=None, but the pipeline says 1",
        "topic 'differing' has 1 replicas, but the pipeline says 3",
    ]


def test_the_broker_says_which_topics_are_compacted(kafka: LiveStack) -> None:
    policies = {"thinned-out": "compact", "thinned-out-and-short": "compact,delete", "kept": "delete"}
    specs = [TopicSpec(name=name, partitions=1, config={"cleanup.policy": policy}) for name, policy in policies.items()]
    admin.create_topics(kafka.bootstrap, specs)

    assert admin.compacted(kafka.bootstrap, list(policies)) == {"thinned-out", "thinned-out-and-short"}
    assert admin.compacted(kafka.bootstrap, []) == frozenset()
    with pytest.raises(KafkaReadError, match="nowhere"):
        admin.compacted(kafka.bootstrap, ["kept", "nowhere"])


def test_the_broker_says_which_topics_lose_only_what_is_old(kafka: LiveStack) -> None:
    configs = {
        "by-age": {"retention.ms": "3600000"},
        "by-age-and-size": {"retention.ms": "3600000", "retention.bytes": "1000000"},
        "for-ever": {"retention.ms": "-1"},
        "compacted-by-age": {"retention.ms": "3600000", "cleanup.policy": "compact,delete"},
    }
    admin.create_topics(
        kafka.bootstrap, [TopicSpec(name=name, partitions=1, config=config) for name, config in configs.items()]
    )

    kept = admin.kept_ms(kafka.bootstrap, list(configs))

    assert kept == {"by-age": 3_600_000, "by-age-and-size": None, "for-ever": None, "compacted-by-age": None}
    assert admin.kept_ms(kafka.bootstrap, []) == {}


def test_a_topic_with_other_partitions_is_an_error(kafka: LiveStack) -> None:
    name = kafka.topic("fixed", partitions=2)

    with pytest.raises(KafkaTopicError, match=f"Topic '{name}' has 2 partitions, but needs 4"):
        admin.create_topics(kafka.bootstrap, [TopicSpec(name=name, partitions=4)])


def test_deleted_topics_are_gone_and_deleting_again_is_fine(kafka: LiveStack) -> None:
    name = kafka.topic("short-lived")

    admin.delete_topics(kafka.bootstrap, [name])
    admin.delete_topics(kafka.bootstrap, [name])

    assert name not in admin.partition_counts(kafka.bootstrap)
    with pytest.raises(KafkaTopicError, match=f"no topic '{name}'"):
        admin.end_offsets(kafka.bootstrap, [name])


def test_offsets_by_begin_end_and_time(kafka: LiveStack) -> None:
    topic = kafka.topic("timed", partitions=2)
    produce(kafka, topic, 1_000, 2_000, 3_000)

    assert admin.begin_offsets(kafka.bootstrap, [topic]) == {(topic, 0): 0, (topic, 1): 0}
    assert admin.end_offsets(kafka.bootstrap, [topic]) == {(topic, 0): 3, (topic, 1): 0}
    assert admin.offsets_at(kafka.bootstrap, [topic], 1_500) == {(topic, 0): 1, (topic, 1): 0}
    assert admin.offsets_at(kafka.bootstrap, [topic], 9_000) == {(topic, 0): 3, (topic, 1): 0}


def test_the_offset_at_a_time_is_the_first_though_times_go_back(kafka: LiveStack) -> None:
    topic = kafka.topic("out-of-order")
    times = [5_000, 1_000, 9_000, 2_000, 4_000, 12_000, 3_000]
    produce(kafka, topic, *times[:3])
    produce(kafka, topic, *times[3:])

    for time_ms in range(500, 13_000, 500):
        expected = next((offset for offset, each in enumerate(times) if each >= time_ms), len(times))
        assert admin.offsets_at(kafka.bootstrap, [topic], time_ms) == {(topic, 0): expected}


def test_ends_stop_at_an_open_transaction_and_settle_when_it_is_gone(kafka: LiveStack) -> None:
    topic = kafka.topic("open")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.flush(30)

    assert admin.end_offsets(kafka.bootstrap, [topic]) == {(topic, 0): 0}
    assert admin.end_offsets(kafka.bootstrap, [topic], committed=False) == {(topic, 0): 1}
    with pytest.raises(KafkaReadError, match="A transaction is still open"):
        settled_end_offsets(kafka.bootstrap, [topic], timeout_s=0.2)

    producer.commit_transaction(30)
    assert settled_end_offsets(kafka.bootstrap, [topic]) == {(topic, 0): 2}


def test_a_broker_that_is_away_says_so() -> None:
    assert not admin.answers("127.0.0.1:1", timeout_s=0.5)


def test_a_recreated_topic_has_another_id(kafka: LiveStack) -> None:
    name, other = kafka.topic("recreated", partitions=3), kafka.topic("stays")
    client = admin.admin(kafka.bootstrap)
    before = admin.topic_states(client, [name, other, "nowhere"])
    admin.delete_topics(kafka.bootstrap, [name])
    admin.create_topics(kafka.bootstrap, [TopicSpec(name=name, partitions=2)])

    after = admin.topic_states(client, [name, other, "nowhere"])

    assert before.keys() == after.keys() == {name, other}
    assert (before[name].partitions, after[name].partitions) == (3, 2)
    assert before[name].id != after[name].id
    assert before[other] == after[other]
    assert admin.topic_ids(client, [other]) == {other: before[other].id}


def test_the_broker_says_how_large_records_may_be_and_how_long_transactions(kafka: LiveStack) -> None:
    stock, small = kafka.topic("stock"), kafka.topic("small", config={"max.message.bytes": "2000"})

    assert admin.record_limits(kafka.bootstrap, [stock, small]) == {stock: 1_048_588, small: 2_000}
    assert admin.transaction_timeout_ms(kafka.bootstrap) == 900_000
